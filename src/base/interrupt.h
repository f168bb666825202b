// SPDX-License-Identifier: Apache-2.0
// Clean ends on SIGINT and SIGTERM: the handler sets a flag that long work asks for between its steps.
#pragma once

namespace pelton {

// For programs, not for the library: takes over SIGINT and SIGTERM. The second signal ends the process at
// once, so work that never asks can still be stopped.
void install_interrupt_handlers();

int interrupt_signal();  // 0, SIGINT or SIGTERM
inline bool interrupted() {
  return interrupt_signal() != 0;
}

// Throws `cancelled` once a signal has come. The program then exits with 128 + interrupt_signal().
void throw_if_interrupted();

void clear_interrupt();  // forgets a signal that has been dealt with

}  // namespace pelton
