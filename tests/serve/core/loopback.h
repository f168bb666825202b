// SPDX-License-Identifier: Apache-2.0
// Connections to a server of this process, for tests that speak a protocol themselves.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <string>

#include "serve/core/model_dir.h"

namespace pelton::serve::test {

// A read that gets nothing ends after 20 seconds: a server that is broken fails a test and does not hold it
// up.
inline Fd connect_to(uint16_t port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval longest{20, 0};
  REQUIRE(::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest) == 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return fd;
}
// Of "127.0.0.1:8001".
inline Fd connect_to(const std::string& endpoint) {
  return connect_to(static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
}

// False once the server has closed.
inline bool send_all(const Fd& fd, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::send(fd.get(), bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace pelton::serve::test
