// SPDX-License-Identifier: Apache-2.0
// Memory that runs out in the middle of a connection costs that connection and nothing else.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "serve/http/client.h"
#include "serve/http/running.h"

namespace {

// Blocks of exactly this many bytes are refused; 0: none are.
std::atomic<size_t> refused_size{0};
std::atomic<int> refused{0};

}  // namespace

// Not inline: where only one of the three is, GCC takes malloc and free for a mismatch of another's.
[[gnu::noinline]] void* operator new(size_t n) {
  void* p = nullptr;
  if (n != refused_size.load(std::memory_order_relaxed) || n == 0) p = std::malloc(n ? n : 1);
  if (p) return p;
  ++refused;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}

namespace pelton::serve::test {

TEST_CASE("a connection for which there is no memory ends, the server and its other connections go on") {
  HttpOptions o;
  o.threads = 1;
  Running r(o);  // whose end says whether a connection is still counted
  const std::string get = "GET /v2 HTTP/1.1\r\nHost: localhost\r\n";
  constexpr size_t kLength = 5003;  // of a header's value, which nothing else is as long as
  const std::string request = get + "X-Long: " + std::string(kLength, 'x') + "\r\n\r\n";
  Client other(r.server->port());
  other.send(get + "\r\n");
  CHECK(other.receive().starts_with("HTTP/1.1 200"));
  for (int i = 0; i < 20; ++i) {
    Client c(r.server->port());
    const int before = refused;
    refused_size = kLength + 1;
    c.send(request);
    CHECK(c.receive() == "");  // closed
    refused_size = 0;
    CHECK(refused == before + 1);
    other.send(get + "\r\n");
    CHECK(other.receive().starts_with("HTTP/1.1 200"));
  }
  // The same request is answered once there is memory.
  Client c(r.server->port());
  c.send(request);
  CHECK(c.receive().starts_with("HTTP/1.1 200"));
}

}  // namespace pelton::serve::test
