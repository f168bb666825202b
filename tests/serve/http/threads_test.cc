// SPDX-License-Identifier: Apache-2.0
// The HTTP front end with many clients at once, while models are loaded anew and clients vanish: every answer
// belongs to its request. Meant for the thread sanitizer too, so it runs in one process with the server.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "serve/core/fixture.h"
#include "serve/http/client.h"
#include "serve/http/server.h"

namespace pelton::serve::test {
namespace {

std::string post(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}
std::string infer(int value) {
  return post("/v2/models/m/infer",
              "{\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"INT32\",\"shape\":[1,1],\"data\":[" +
                  std::to_string(value) + "]}]}");
}

}  // namespace

TEST_CASE("many HTTP clients, reloads and clients that vanish: every answer belongs to its request") {
  TestServer s;
  REQUIRE(s.start_reloadable().empty());
  HttpOptions o;
  o.port = 0;
  o.threads = 3;
  o.router.metrics = true;
  HttpServer server(*s.core, o);

  std::atomic<bool> stop{false};
  std::atomic<int> right{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&, k] {
      Client client(server.port());
      for (int i = 0; i < 150; ++i) {
        const int value = k * 1000 + i;
        client.send(infer(value));
        const std::string answer = client.receive();
        const bool ok = answer.starts_with("HTTP/1.1 200") &&
                        answer.find("\"data\":[" + std::to_string(value) + "]") != answer.npos;
        ++(ok ? right : wrong);
        if (!ok) MESSAGE(answer);
      }
    });
  threads.emplace_back([&] {
    for (int i = 0; !stop; ++i) {
      Client vanishing(server.port());
      vanishing.send(infer(i).substr(0, i % 2 ? 60 : 4000));
    }
  });
  threads.emplace_back([&] {
    Client client(server.port());
    while (!stop)
      for (const char* path : {"/", "/metrics", "/v2/models/stats", "/v2/models/m/config"}) {
        client.send(std::string("GET ") + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
        if (!client.receive().starts_with("HTTP/1.1 200")) ++wrong;
      }
  });
  threads.emplace_back([&] {
    Client client(server.port());
    while (!stop) {
      client.send(post("/v2/repository/models/m/load", "{}"));
      if (!client.receive().starts_with("HTTP/1.1 200")) ++wrong;
    }
  });
  for (int k = 0; k < 4; ++k) threads[static_cast<size_t>(k)].join();
  stop = true;
  for (size_t k = 4; k < threads.size(); ++k) threads[k].join();
  CHECK(right == 600);
  CHECK(wrong == 0);
  CHECK(s.end(server));
}

}  // namespace pelton::serve::test
