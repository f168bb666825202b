// SPDX-License-Identifier: Apache-2.0
#include "serve/log_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <deque>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/log.h"

namespace pelton::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kQueueBytes = 1 << 20;
constexpr size_t kPiece = 4096;  // what a pipe that polls as writable takes without waiting (PIPE_BUF)
// At the end: how long a reader may take for the next piece, and for all of them.
constexpr auto kPatience = std::chrono::milliseconds(500);
constexpr auto kLast = std::chrono::seconds(5);

std::string time_text() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  ::gmtime_r(&now.tv_sec, &utc);
  char time[64];
  const size_t n = std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(time + n, sizeof time - n, ".%03ldZ", now.tv_nsec / 1000000);
  return time;
}

// Bytes of the character of UTF-8 that `s` begins with; 0 if it is none that may be shown.
size_t shown_bytes(std::string_view s) {
  const auto at = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
  const unsigned first = at(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f;
  const size_t n = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (n == 0 || first >= 0xf5) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((at(i) & 0xc0) != 0x80) return 0;
  if (first == 0xc2 && at(1) < 0xa0) return 0;  // control characters of the upper half
  return n;
}

// Messages quote what models print and what files are named: nothing of that may steer a terminal, look like
// a message of its own or break the encoding of the log.
std::string printable(std::string_view message, std::string_view line_break) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  while (!message.empty()) {
    const char c = message[0];
    size_t n = shown_bytes(message);
    if (n || c == '\t') {
      out += message.substr(0, n = std::max<size_t>(n, 1));
    } else if (c == '\n') {
      out += line_break;
      n = 1;
    } else {
      out += {'\\', 'x', kHex[static_cast<unsigned char>(c) >> 4], kHex[c & 15]};
      n = 1;
    }
    message.remove_prefix(n);
  }
  return out;
}

class LogWriter {
 public:
  explicit LogWriter(const std::string& path) : to_file_(!path.empty()) {
    if (to_file_) {
      file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
      if (file_ < 0) fail_errno(errno, "open the log", path);
    }
    thread_ = std::thread([this] { write_all(); });
  }

  void add(LogLevel level, const char* message) {
    // In a file one message is one line; people read further lines behind an indent.
    std::string line = printable(message, to_file_ ? "\\n" : "\n  ");
    const std::string_view name = level == LogLevel::warn ? "warning" : to_string(level);
    line = to_file_ ? cat(time_text(), " ", to_string(level), " ", line, "\n")
                    : cat("pelton: ", name, ": ", line, "\n");
    {
      std::lock_guard lock(mutex_);
      if (stopping_ || bytes_ + line.size() > kQueueBytes) {
        ++dropped_;
        return;
      }
      bytes_ += line.size();
      lines_.push_back(std::move(line));
    }
    wake_.notify_one();
  }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      stop_began_ = moved_ = Clock::now();
    }
    wake_.notify_one();
    thread_.join();
  }

 private:
  void write_all() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stopping_ || !lines_.empty(); });
      if (lines_.empty()) return;
      const std::string line = std::move(lines_.front());
      lines_.pop_front();
      bytes_ -= line.size();
      lock.unlock();
      const bool written = write_line(line);
      lock.lock();
      if (!written) return;
      if (!dropped_ || !lines_.empty()) continue;
      lines_.push_back(cat(to_file_ ? time_text() + " warn" : "pelton: warning:", " ", dropped_,
                           " log messages were dropped: they came faster than they could be written\n"));
      bytes_ += lines_.back().size();
      dropped_ = 0;
    }
  }

  // False once the time to stop is over.
  bool write_line(const std::string& line) {
    for (size_t at = 0; at < line.size();) {
      pollfd p{file_, POLLOUT, 0};
      if (::poll(&p, 1, 100) <= 0) {
        std::lock_guard lock(mutex_);
        const auto now = Clock::now();
        if (stopping_ && (now - moved_ >= kPatience || now - stop_began_ >= kLast)) return false;
        continue;
      }
      const ssize_t n = ::write(file_, line.data() + at, std::min(kPiece, line.size() - at));
      if (n > 0) {
        at += static_cast<size_t>(n);
        std::lock_guard lock(mutex_);
        moved_ = Clock::now();
      } else if (errno != EINTR && errno != EAGAIN) {
        break;  // a full disk, a pipe without a reader: this message is lost, the next may fit
      }
    }
    return true;
  }

  const bool to_file_;
  int file_ = STDERR_FILENO;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::string> lines_;
  size_t bytes_ = 0;
  uint64_t dropped_ = 0;
  bool stopping_ = false;
  Clock::time_point stop_began_, moved_;  // when the end began, when something was written last
  std::thread thread_;
};

LogWriter* writer = nullptr;  // never destroyed: a thread that is logging may still hold the sink

}  // namespace

void start_log_writer(const std::string& path) {
  writer = new LogWriter(path);
  set_log_sink(
      [](void* w, LogLevel level, const char* text) { static_cast<LogWriter*>(w)->add(level, text); },
      writer);
}

void stop_log_writer() {
  writer->stop();
}

}  // namespace pelton::serve
