// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "base/error.h"
#include "serve/loadtest/client.h"

namespace pelton::serve {

Endpoint parse_endpoint(std::string url) {
  Endpoint e;
  const std::string given = url;
  if (url.starts_with("grpc://"))
    e.grpc = true, url.erase(0, 7);
  else if (url.starts_with("http://"))
    url.erase(0, 7);
  else if (url.find("://") != url.npos)
    fail(ErrorCode::usage, cat("'", given, "' is neither http:// nor grpc://"));
  while (!url.empty() && url.back() == '/') url.pop_back();
  size_t colon = url.find(':');
  if (url.starts_with("[")) {
    const size_t end = url.find(']');
    if (end == url.npos || (end + 1 < url.size() && url[end + 1] != ':'))
      fail(ErrorCode::usage, cat("'", given, "' is not [address]:port"));
    e.host = url.substr(1, end - 1);
    colon = end + 1 < url.size() ? end + 1 : url.npos;
  } else if (colon != url.npos && url.find(':', colon + 1) != url.npos) {
    fail(ErrorCode::usage, cat("'", given, "' has more than one colon"), "",
         "put an IPv6 address in brackets: [::1]:8000");
  } else {
    e.host = url.substr(0, colon);
  }
  if (e.host.empty() || e.host.find_first_of("/?#@ \t\r\n") != e.host.npos)
    fail(ErrorCode::usage, cat("'", given, "' names no host"));
  e.port = e.grpc ? 8001 : 8000;
  if (colon == url.npos) return e;
  auto r = std::from_chars(url.data() + colon + 1, url.data() + url.size(), e.port);
  if (r.ec != std::errc() || r.ptr != url.data() + url.size() || e.port == 0)
    fail(ErrorCode::usage, cat("'", given, "' has no usable port"));
  return e;
}

std::string Endpoint::authority() const {
  return host.find(':') == host.npos ? cat(host, ":", port) : cat("[", host, "]:", port);
}

}  // namespace pelton::serve
