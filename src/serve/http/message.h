// SPDX-License-Identifier: Apache-2.0
// HTTP requests and responses as the routes see them, free of the socket library.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/core/blob.h"
#include "serve/core/request.h"

namespace pelton::serve {

struct HttpRequest {
  std::string method, target;  // target as sent: path and query
  std::vector<std::pair<std::string, std::string>> headers;
  Blob body;  // followed by at least 64 readable bytes
  Clock::time_point arrival;
  std::shared_ptr<CancelToken> token;

  std::string_view header(std::string_view name) const;  // case-insensitive; empty if absent
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<Blob> body;
  bool close = false;

  static HttpResponse json(std::string text, int status = 200);
  static HttpResponse text(std::string text, std::string type, int status = 200);
  static HttpResponse error(const Error& e);
  static HttpResponse error(int status, std::string_view message);
  static HttpResponse wrong_method(std::string allowed, std::string_view message);  // 405
  size_t size() const;
};

// Where an answer goes, from any thread: respond() once, or begin_stream() once and then stream() until
// `last`.
class HttpPeer {
 public:
  virtual ~HttpPeer() = default;
  virtual void respond(HttpResponse&& response) = 0;
  virtual void begin_stream(HttpResponse&& head) = 0;  // its body is ignored
  virtual void stream(std::string piece, bool last) = 0;
};

std::string_view reason_phrase(int status);

}  // namespace pelton::serve
