// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.h"

#include <csignal>

#include <atomic>

#include "base/error.h"

namespace pelton {
namespace {

std::atomic<int> pending{0};
static_assert(std::atomic<int>::is_always_lock_free);  // a signal handler may touch nothing else

void on_signal(int signal) {
  int none = 0;
  if (!pending.compare_exchange_strong(none, signal)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

void install_interrupt_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a blocking call returns so that the flag is seen
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int interrupt_signal() {
  return pending.load(std::memory_order_relaxed);
}
void clear_interrupt() {
  pending.store(0);
}

void throw_if_interrupted() {
  int signal = interrupt_signal();
  if (signal) fail(ErrorCode::cancelled, signal == SIGINT ? "interrupted" : "terminated by a signal");
}

}  // namespace pelton
