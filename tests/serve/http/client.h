// SPDX-License-Identifier: Apache-2.0
// A client on a socket of its own, for tests of the HTTP front end.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace pelton::serve::test {

// A connection that is kept.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  }
  ~Client() { ::close(fd_); }
  void send(const std::string& bytes) const {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return;
      at += static_cast<size_t>(n);
    }
  }
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
      const ssize_t n = ::recv(fd_, more, sizeof more, 0);
      if (n <= 0) return "";
      buffer_.append(more, static_cast<size_t>(n));
    }
  }
  // Whether the server has, with nothing left to read.
  bool closed() const {
    char byte;
    const ssize_t n = ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN);
  }

 private:
  const int fd_;
  std::string buffer_;
};

}  // namespace pelton::serve::test
