// SPDX-License-Identifier: Apache-2.0
#include "serve/http/message.h"

#include <strings.h>

#include "serve/core/core.h"

namespace pelton::serve {

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [n, v] : headers)
    if (n.size() == name.size() && ::strncasecmp(n.data(), name.data(), n.size()) == 0) return v;
  return {};
}

HttpResponse HttpResponse::json(std::string text, int status) {
  return HttpResponse::text(std::move(text), "application/json", status);
}

HttpResponse HttpResponse::text(std::string text, std::string type, int status) {
  HttpResponse r;
  r.status = status;
  r.content_type = std::move(type);
  if (!text.empty()) r.body.push_back(Blob::from(std::move(text)));
  return r;
}

HttpResponse HttpResponse::error(const Error& e) {
  HttpResponse r = json(error_json(e), http_status(e.code()));
  if (r.status == 503) r.headers.emplace_back("Retry-After", "1");
  return r;
}

HttpResponse HttpResponse::error(int status, std::string_view message) {
  HttpResponse r = json(cat("{\"error\":", json_string(message), "}"), status);
  if (status == 503 || status == 429) r.headers.emplace_back("Retry-After", "1");
  return r;
}

HttpResponse HttpResponse::wrong_method(std::string allowed, std::string_view message) {
  HttpResponse r = error(405, message);
  r.headers.emplace_back("Allow", std::move(allowed));
  return r;
}

size_t HttpResponse::size() const {
  size_t n = 0;
  for (const Blob& b : body) n += b.size;
  return n;
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

}  // namespace pelton::serve
