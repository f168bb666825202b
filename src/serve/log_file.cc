// SPDX-License-Identifier: Apache-2.0
#include "serve/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <string>

#include "base/file.h"
#include "base/log.h"

namespace pelton::serve {

void log_to_file(const std::string& path) {
  static int file = -1;
  const int opened = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  if (opened < 0) fail_errno(errno, "open the log", path);
  file = opened;
  set_log_sink(
      [](void*, LogLevel level, const char* message) {
        timespec now{};
        ::clock_gettime(CLOCK_REALTIME, &now);
        tm utc{};
        ::gmtime_r(&now.tv_sec, &utc);
        char time[64];
        const size_t n = std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &utc);
        std::snprintf(time + n, sizeof time - n, ".%03ldZ", now.tv_nsec / 1000000);
        std::string line;
        for (const char* c = message; *c; ++c) {  // one message, one line
          if (*c == '\n')
            line += "\\n";
          else
            line += *c;
        }
        line = cat(time, " ", to_string(level), " ", line, "\n");
        [[maybe_unused]] const ssize_t written = ::write(file, line.data(), line.size());
      },
      nullptr);
}

}  // namespace pelton::serve
