// SPDX-License-Identifier: Apache-2.0
#include "data/source/http_request.h"
#if PELTON_HAVE_CURL
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "base/error.h"
#include "data/source/curl.h"
#include "data/source/s3.h"
#include "data/source/source.h"

namespace pelton::data {
namespace {

constexpr int kMostRedirects = 5;

bool listed(std::string_view name) {
  const char* list = std::getenv("PELTON_HTTP_ALLOW");
  std::string_view rest = list ? list : "";
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(','), rest.size());
    std::string_view item = rest.substr(0, end);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    if (!item.empty() && item == name) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

std::string lowered(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// The host of a URL as libcurl itself reads it, so that what is on the list is what is connected to.
std::string host_of(const std::string& url) {
  const CurlApi& c = curl();
  std::unique_ptr<CURLU, void (*)(CURLU*)> parts(c.url_new(), c.url_cleanup);
  char* host = nullptr;
  if (!parts || c.url_set(parts.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      c.url_get(parts.get(), CURLUPART_HOST, &host, 0) != CURLUE_OK)
    return {};
  std::string out = lowered(host);
  c.free(host);
  if (out.starts_with('[') && out.ends_with(']')) out = out.substr(1, out.size() - 2);
  return out;
}

std::string address_text(const sockaddr* a) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* from = a->sa_family == AF_INET
                         ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(a)->sin_addr)
                         : static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr);
  return inet_ntop(a->sa_family, from, text.data(), text.size()) ? text.data() : "";
}

// Sees every address before it is connected to, those of redirects too.
curl_socket_t open_socket(void* user, curlsocktype, curl_sockaddr* a) {
  auto& t = *static_cast<Transfer*>(user);
  const std::string text =
      a->family == AF_INET || a->family == AF_INET6 ? address_text(&a->addr) : std::string("another family");
  if (!t.allowed && !listed(text) && is_private_address(text)) {
    t.refused = text;
    return CURL_SOCKET_BAD;
  }
  return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

size_t take_body(char* data, size_t, size_t n, void* user) {
  auto& t = *static_cast<Transfer*>(user);
  if (t.status == 200 && t.wanted != 200) return 0;  // a whole file that nobody asked for: break off
  if (t.text && t.status == t.wanted)
    t.text->append(data, std::min(n, kUnwanted - std::min(kUnwanted, t.text->size())));
  if (t.text || t.status != t.wanted)
    return (t.unwanted += n) > kUnwanted ? 0 : n;  // the text of an error or a redirect
  const size_t some = std::min(n, t.into.size() - t.received);
  if (some) std::memcpy(t.into.data() + t.received, data, some);
  t.received += some;
  return n;
}

std::optional<int64_t> number(std::string_view s) {
  int64_t v = 0;
  const auto r = std::from_chars(s.data(), s.data() + s.size(), v);
  if (r.ec != std::errc() || r.ptr != s.data() + s.size() || v < 0) return std::nullopt;
  return v;
}

size_t take_header(char* data, size_t, size_t n, void* user) {
  auto& t = *static_cast<Transfer*>(user);
  std::string_view line(data, n);
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {  // the last one counts: an interim answer may come before it
    const size_t at = line.find(' ');
    t.status = at == line.npos ? 0 : number(line.substr(at + 1, 3)).value_or(0);
    t.total = t.start = -1;
    return n;
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return n;
  const std::string key = lowered(line.substr(0, colon));
  std::string_view value = line.substr(colon + 1);
  while (value.starts_with(' ')) value.remove_prefix(1);
  if (key == "etag") t.tag = value;
  if (key == "last-modified") t.date = value;
  if (key == "content-range" && value.starts_with("bytes ")) {  // bytes 0-99/1234
    value.remove_prefix(6);
    const size_t dash = value.find('-'), slash = value.find('/');
    if (dash != value.npos && slash != value.npos && dash < slash) {
      t.start = number(value.substr(0, dash)).value_or(-1);
      t.total = number(value.substr(slash + 1)).value_or(-1);
    }
  }
  return n;
}

// A handle for each thread keeps its connections.
CURL* handle() {
  struct Close {
    void operator()(CURL* c) const { curl().easy_cleanup(c); }
  };
  thread_local std::unique_ptr<CURL, Close> h(curl().easy_init());
  if (!h) fail(ErrorCode::out_of_memory, "libcurl gives no handle");
  return h.get();
}

using Headers = std::unique_ptr<curl_slist, void (*)(curl_slist*)>;

// libcurl signs; what it does not add by itself in every release is given to it as headers, which it covers.
Headers sign(CURL* h, const S3Address& s3) {
  const CurlApi& c = curl();
  const std::string how = cat("aws:amz:", s3.region, ":s3");
  if (c.easy_setopt(h, CURLOPT_AWS_SIGV4, how.c_str()) != CURLE_OK)
    fail(ErrorCode::unsupported_op, "the machine's libcurl cannot sign requests for S3", s3.url,
         "install libcurl 7.88 or newer, or use a signed URL");
  c.easy_setopt(h, CURLOPT_USERNAME, s3.key_id.c_str());
  c.easy_setopt(h, CURLOPT_PASSWORD, s3.secret.c_str());
  Headers headers(c.list_append(nullptr, "x-amz-content-sha256: UNSIGNED-PAYLOAD"), c.list_free);
  if (!s3.token.empty()) c.list_append(headers.get(), cat("x-amz-security-token: ", s3.token).c_str());
  c.easy_setopt(h, CURLOPT_HTTPHEADER, headers.get());
  return headers;
}

int give_up(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return given_up();
}

// One answer; redirects are not followed.
CURLcode ask(const std::string& url, const HttpLimits& limits, int64_t offset, Transfer& t) {
  const CurlApi& c = curl();
  CURL* h = handle();
  c.easy_reset(h);
  t.allowed = listed(host_of(url));
  const std::string range = cat(offset, "-", offset + static_cast<int64_t>(t.into.size()) - 1);
  c.easy_setopt(h, CURLOPT_URL, url.c_str());
  if (t.wanted == 206) c.easy_setopt(h, CURLOPT_RANGE, range.c_str());
  Headers headers(nullptr, c.list_free);
  if (t.s3 && t.s3->signs() && host_of(url) == host_of(t.s3->url)) headers = sign(h, *t.s3);
  c.easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
  c.easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
  c.easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
  c.easy_setopt(h, CURLOPT_PROXY, "");  // a proxy would hide the address that is reached
  c.easy_setopt(h, CURLOPT_CONNECTTIMEOUT, static_cast<long>(limits.silence_s));
  c.easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
  c.easy_setopt(h, CURLOPT_LOW_SPEED_TIME, static_cast<long>(limits.silence_s));
  c.easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
  c.easy_setopt(h, CURLOPT_XFERINFOFUNCTION, give_up);
  c.easy_setopt(h, CURLOPT_USERAGENT, "pelton");
  c.easy_setopt(h, CURLOPT_OPENSOCKETFUNCTION, open_socket);
  c.easy_setopt(h, CURLOPT_OPENSOCKETDATA, &t);
  c.easy_setopt(h, CURLOPT_HEADERFUNCTION, take_header);
  c.easy_setopt(h, CURLOPT_HEADERDATA, &t);
  c.easy_setopt(h, CURLOPT_WRITEFUNCTION, take_body);
  c.easy_setopt(h, CURLOPT_WRITEDATA, &t);
  return c.easy_perform(h);
}

}  // namespace

std::string request(const std::string& url, const HttpLimits& limits, int64_t offset, Transfer& t,
                    bool& final) {
  const CurlApi& c = curl();
  const Transfer asked = t;
  std::string at = url;
  CURLcode code = CURLE_OK;
  final = true;
  for (int hop = 0;; ++hop) {
    t = asked;
    if (t.text) t.text->clear();
    code = ask(at, limits, offset, t);
    if (given_up()) fail(ErrorCode::cancelled, "the pipeline was closed", url);
    char* next = nullptr;
    if (code != CURLE_OK || t.status / 100 != 3 ||
        c.easy_getinfo(handle(), CURLINFO_REDIRECT_URL, &next) != CURLE_OK || !next)
      break;
    if (hop == kMostRedirects) return cat("more than ", kMostRedirects, " redirects");
    at = std::string(next);
    const std::string scheme = lowered(at.substr(0, 8));
    if (!is_url(scheme) || is_s3(scheme)) return cat("a redirect leads to ", at, ", which is no HTTP URL");
  }
  if (!t.refused.empty()) return cat("the address ", t.refused, " is private and not in PELTON_HTTP_ALLOW");
  if (t.status == 200 && t.wanted != 200) return "the server does not answer ranges";
  final = code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
          code == CURLE_PEER_FAILED_VERIFICATION;
  if (code != CURLE_OK) return c.easy_strerror(code);
  if (t.status == 429 || t.status >= 500) return cat("the server answers ", t.status);
  final = true;
  if (t.status != t.wanted) return cat("the server answers ", t.status);
  if (t.wanted == 206 && t.start != offset)
    return cat("the server answers bytes from ", t.start, " when asked from ", offset);
  final = false;
  if (t.received < t.into.size())
    return cat("the body ended after ", t.received, " of ", t.into.size(), " bytes");
  return {};
}

}  // namespace pelton::data
#endif
