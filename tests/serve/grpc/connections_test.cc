// SPDX-License-Identifier: Apache-2.0
// Connections beyond the limit are told so and closed, those that go make room.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "serve/core/fixture.h"
#include "serve/core/loopback.h"
#include "serve/grpc/server.h"

namespace pelton::serve::test {
namespace {

// Connected, with the client's first bytes sent.
Fd greeted(const std::string& endpoint) {
  Fd fd = connect_to(endpoint);
  REQUIRE(send_all(fd, std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33)));
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
      open.push_back(greeted(server->endpoint()));
      CHECK(taken(open.back()));
    }
    for (int i = 0; i < 3; ++i) CHECK_FALSE(taken(greeted(server->endpoint())));
    open.pop_back();
    CHECK(until([&] { return taken(greeted(server->endpoint())); }));
  }
  CHECK(s.end(*server));
}

}  // namespace pelton::serve::test
