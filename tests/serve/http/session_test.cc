// SPDX-License-Identifier: Apache-2.0
// Connections that are slow on purpose: what they announce takes nothing from others, and a trickle ends.
#include <doctest/doctest.h>

#include "serve/http/client.h"
#include "serve/http/running.h"

namespace pelton::serve::test {
namespace {

using std::chrono::milliseconds;

const std::string kHead = "POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n";

}  // namespace

TEST_CASE("what a client announces takes no room before it comes, and a body that comes is given back") {
  Running r;
  {
    std::vector<std::unique_ptr<Client>> slow;
    for (int i = 0; i < 40; ++i) {  // together more than the server would hold
      slow.push_back(std::make_unique<Client>(r.server->port()));
      slow.back()->send(kHead + (i % 2 ? "Transfer-Encoding: chunked\r\n\r\n3ffffff\r\n{"
                                       : "Content-Length: 67108864\r\n\r\n{"));
    }
    std::this_thread::sleep_for(milliseconds(100));
    CHECK(r.used() > 0);
    CHECK(r.used() <= 41u << 20);
    Client other(r.server->port());
    other.send(kHead + "Content-Length: 67108864\r\n\r\n" + std::string(67108864, ' '));
    CHECK(other.receive().starts_with("HTTP/1.1 400"));  // was read whole: no JSON
  }
  CHECK(until([&] { return r.used() == 0; }));
}

TEST_CASE("a body that only trickles is cut off, one that moves is not") {
  HttpOptions o;
  o.stall_timeout = milliseconds(600);
  Running r(o);
  Client trickle(r.server->port()), steady(r.server->port());
  const std::string head = kHead + "Content-Length: 2000000\r\n\r\n";
  trickle.send(head);
  steady.send(head);
  for (int i = 0; i < 20; ++i) {  // 2 s
    trickle.send(" ");
    steady.send(std::string(100'000, ' '));
    std::this_thread::sleep_for(milliseconds(100));
  }
  CHECK(steady.receive().starts_with("HTTP/1.1 400"));
  CHECK(until([&] {  // while it goes on
    trickle.send(" ");
    return trickle.closed();
  }));
}

TEST_CASE("a chunk's first line and the trailer are bounded") {
  Running r;
  for (const std::string part : {"1;", "1\r\n{\r\n0\r\nX: "}) {
    Client c(r.server->port());
    c.send(kHead + "Transfer-Encoding: chunked\r\n\r\n" + part + std::string(100'000, 'a'));
    const std::string answer = c.receive();
    CHECK(answer.starts_with("HTTP/1.1 400"));
    CHECK(answer.find("a chunk's first line or the trailer is longer than 8192 bytes") != answer.npos);
  }
}

}  // namespace pelton::serve::test
