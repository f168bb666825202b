// SPDX-License-Identifier: Apache-2.0
// The HTTP front end: sockets, connections, limits. One event loop a thread; a connection stays on its
// thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "serve/core/access.h"
#include "serve/http/router.h"

namespace pelton::serve {

struct HttpOptions {
  std::string address = "127.0.0.1";  // or "unix:PATH"
  uint16_t port = 8000;               // 0: any free one
  bool reuse_port = false;
  int threads = 1;
  size_t max_connections = 1024;
  size_t max_headers = 100, max_header_bytes = 8192;
  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds idle_timeout{300'000};  // between requests of one connection
  std::chrono::milliseconds stall_timeout{60'000};  // a body or answer that makes no progress
  TlsOptions tls;
  RouterOptions router;
};

class HttpServer {
 public:
  struct Impl;

  // Listens at once; io names the address if it is taken.
  HttpServer(Core& core, HttpOptions options);
  ~HttpServer();
  // "127.0.0.1:8000" or "unix:PATH"
  std::string endpoint() const;
  uint16_t port() const;
  // No new connections; idle ones are closed, the others after their answer.
  void drain();
  // True once no connection is left.
  bool drained() const;
  void stop();  // closes everything, ends the threads

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace pelton::serve
