// SPDX-License-Identifier: Apache-2.0
// The HTTP front end with many clients at once, while models are loaded anew and clients vanish: every answer
// belongs to its request. Meant for the thread sanitizer too, so it runs in one process with the server.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "serve/core/fixture.h"
#include "serve/http/server.h"

namespace pelton::serve::test {
namespace {

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

 private:
  const int fd_;
  std::string buffer_;
};

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
