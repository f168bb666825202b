// SPDX-License-Identifier: Apache-2.0
// Connections beyond the limit are told so and closed, those that go make room.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "serve/core/fixture.h"
#include "serve/grpc/server.h"

namespace pelton::serve::test {
namespace {

// Connected, with the client's first bytes sent.
Fd connect_to(const std::string& endpoint) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  const std::string hello("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  REQUIRE(::send(fd.get(), hello.data(), hello.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(hello.size()));
  return fd;
}

// The server answers a connection that it took with its settings and keeps it, others with the reason.
bool taken(const Fd& fd) {
  std::string text;
  char bytes[256];
  while (text.size() < 9) {
    const ssize_t n = ::recv(fd.get(), bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    text.append(bytes, static_cast<size_t>(n));
  }
  return text.find("too many connections") == text.npos;
}

}  // namespace

TEST_CASE("gRPC connections are bounded, and one that ends makes room") {
  TestServer s;
  REQUIRE(s.start_echo().empty());
  GrpcOptions o;
  o.port = 0;
  o.max_connections = 3;
  const auto server = make_grpc_server(*s.core, o);
  {
    std::vector<Fd> open;
    for (int i = 0; i < 3; ++i) {
      open.push_back(connect_to(server->endpoint()));
      CHECK(taken(open.back()));
    }
    for (int i = 0; i < 3; ++i) CHECK_FALSE(taken(connect_to(server->endpoint())));
    open.pop_back();
    CHECK(until([&] { return taken(connect_to(server->endpoint())); }));
  }
  CHECK(s.end(*server));
}

}  // namespace pelton::serve::test
