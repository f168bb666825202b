// SPDX-License-Identifier: Apache-2.0
// A client on a socket of its own, for tests of the HTTP front end.
#pragma once

#include <cerrno>
#include <string>

#include "serve/core/loopback.h"

namespace pelton::serve::test {

// A connection that is kept.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(connect_to(port)) {}
  void send(const std::string& bytes) const { send_all(fd_, bytes); }
  // One answer with a Content-Length; empty once the server has closed.
  std::string receive() {
    for (;;) {
      const size_t head = buffer_.find("\r\n\r\n");
      const size_t length = buffer_.find("Content-Length: ");
      if (head != buffer_.npos && length < head) {
        const size_t size = head + 4 + std::stoul(buffer_.substr(length + 16));
        if (buffer_.size() >= size) {
          std::string answer = buffer_.substr(0, size);
          buffer_.erase(0, size);
          return answer;
        }
      }
      char more[4096];
      const ssize_t n = ::recv(fd_.get(), more, sizeof more, 0);
      if (n <= 0) return "";
      buffer_.append(more, static_cast<size_t>(n));
    }
  }
  // Whether the server has, with nothing left to read.
  bool closed() const {
    char byte;
    const ssize_t n = ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
  }

 private:
  const Fd fd_;
  std::string buffer_;
};

}  // namespace pelton::serve::test
