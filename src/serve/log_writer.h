// SPDX-License-Identifier: Apache-2.0
// Where the server's log messages go: to standard error, or to a file behind their time (ISO 8601, UTC). A
// thread writes them from a bounded queue, so a pipe that nobody reads or a slow disk never holds up a
// request; messages that find the queue full are dropped, and a line tells how many once writing goes on.
#pragma once

#include <string>

namespace pelton::serve {

// From now on; once in a process. Empty path: standard error. Io error if the file cannot be opened.
void start_log_writer(const std::string& path);
// Writes what waits, as long as it is read (five seconds at most), and ends the thread. Later messages are
// dropped.
void stop_log_writer();

}  // namespace pelton::serve
