// SPDX-License-Identifier: Apache-2.0
// A server on loopback that answers ranges of files held in memory, for tests of sources behind URLs.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/cat.h"

namespace pelton::test {

class RangeServer {
 public:
  // Says whether a range that starts at this byte is left without an answer.
  explicit RangeServer(std::map<std::string, std::string> files, std::function<bool(size_t)> silent = {})
      : files_(std::move(files)), silent_(std::move(silent)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listener_, reinterpret_cast<sockaddr*>(&a), sizeof a);
    listen(listener_, 64);
    socklen_t n = sizeof a;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&a), &n);
    port_ = ntohs(a.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~RangeServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    close(listener_);
    for (int fd : connections_) shutdown(fd, SHUT_RDWR);
    for (std::thread& t : threads_) t.join();
    for (int fd : connections_) close(fd);
  }
  RangeServer(const RangeServer&) = delete;
  std::string url(const std::string& path) const { return cat("http://127.0.0.1:", port_, "/", path); }
  int unanswered() const { return unanswered_; }

 private:
  void accept_all() {
    for (int fd; (fd = accept(listener_, nullptr, nullptr)) >= 0;) {
      connections_.push_back(fd);
      threads_.emplace_back([this, fd] { serve(fd); });
    }
  }

  void serve(int fd) {
    std::string got;
    char chunk[4096];
    for (ssize_t some; (some = recv(fd, chunk, sizeof chunk, 0)) > 0;) {
      got.append(chunk, static_cast<size_t>(some));
      for (size_t end; (end = got.find("\r\n\r\n")) != got.npos; got.erase(0, end + 4)) {
        const size_t range = got.find("bytes=");
        if (silent_ && range < end && silent_(std::stoull(got.substr(range + 6)))) {
          ++unanswered_;
          continue;
        }
        const std::string answer = answer_to(got.substr(0, end));
        for (size_t sent = 0; sent < answer.size();) {
          const ssize_t k = send(fd, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
          if (k <= 0) return;
          sent += static_cast<size_t>(k);
        }
      }
    }
  }

  std::string answer_to(const std::string& head) const {
    const size_t path = head.find('/') + 1, range = head.find("bytes=");
    std::string name = head.substr(path, head.find(' ', path) - path);
    while (name.starts_with("./")) name.erase(0, 2);
    const auto file = files_.find(name);
    if (file == files_.end() || range == head.npos) return "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n";
    const std::string& all = file->second;
    const size_t first = std::stoull(head.substr(range + 6)),
                 last = std::min<size_t>(std::stoull(head.substr(head.find('-', range) + 1)), all.size() - 1);
    if (first >= all.size()) return "HTTP/1.1 416 No\r\nContent-Length: 0\r\n\r\n";
    return cat("HTTP/1.1 206 Part\r\nContent-Range: bytes ", first, "-", last, "/", all.size(),
               "\r\nContent-Length: ", last - first + 1, "\r\n\r\n", all.substr(first, last - first + 1));
  }

  std::map<std::string, std::string> files_;
  std::function<bool(size_t)> silent_;
  int listener_ = -1, port_ = 0;
  std::atomic<int> unanswered_{0};
  std::thread acceptor_;
  std::vector<int> connections_;  // by the acceptor only, until it has ended
  std::vector<std::thread> threads_;
};

}  // namespace pelton::test
