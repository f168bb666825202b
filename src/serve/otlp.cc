// SPDX-License-Identifier: Apache-2.0
#include "serve/otlp.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "serve/core/core.h"
#include "serve/core/model_dir.h"

namespace pelton::serve {
namespace {

constexpr size_t kMaxWaiting = 16384;  // spans
constexpr size_t kMaxBatch = 512;      // spans of one message

}  // namespace

OtlpExporter::OtlpExporter(const std::string& url, std::map<std::string, std::string> resource) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme))
    fail(ErrorCode::usage, cat("the collector '", url, "' is not http://"), "",
         "run a collector on this machine that forwards");
  const std::string rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  host_ = rest.substr(0, slash);
  if (slash + 1 < rest.size()) path_ = rest.substr(slash);
  if (const size_t colon = host_.rfind(':'); colon != host_.npos && host_.back() != ']') {
    port_ = host_.substr(colon + 1);
    host_.resize(colon);
  }
  if (host_.size() > 2 && host_.front() == '[') host_ = host_.substr(1, host_.size() - 2);
  resource.try_emplace("service.name", "pelton");
  std::string attributes;
  for (const auto& [key, value] : resource)
    attributes += cat(attributes.empty() ? "" : ",", "{\"key\":", json_string(key),
                      ",\"value\":{\"stringValue\":", json_string(value), "}}");
  head_ = cat("{\"resourceSpans\":[{\"resource\":{\"attributes\":[", attributes,
              "]},\"scopeSpans\":[{\"scope\":{\"name\":\"pelton.serve\"},\"spans\":[");
  thread_ = std::thread([this] { work(); });
}

OtlpExporter::~OtlpExporter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (dropped_) log_warn(dropped_, " spans could not be sent to the collector");
}

void OtlpExporter::add(std::string span) {
  std::lock_guard lock(mutex_);
  if (spans_.size() >= kMaxWaiting) {
    ++dropped_;
    return;
  }
  spans_.push_back(std::move(span));
  if (spans_.size() == 1 || spans_.size() == kMaxBatch) wake_.notify_all();
}

void OtlpExporter::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || !spans_.empty(); });
    // Gathers for a moment, so that a busy server sends few messages.
    wake_.wait_for(lock, std::chrono::milliseconds(500),
                   [&] { return stopping_ || spans_.size() >= kMaxBatch; });
    if (spans_.empty() && stopping_) return;
    const auto end = spans_.begin() + static_cast<std::ptrdiff_t>(std::min(spans_.size(), kMaxBatch));
    const std::vector<std::string> spans(std::move_iterator(spans_.begin()), std::move_iterator(end));
    spans_.erase(spans_.begin(), end);
    lock.unlock();
    std::string body = head_;
    for (size_t i = 0; i < spans.size(); ++i) body += cat(i ? "," : "", spans[i]);
    body += "]}]}]}";
    const bool sent = post(body);
    lock.lock();
    if (!sent) dropped_ += spans.size();
  }
}

bool OtlpExporter::post(const std::string& body) const {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host_.c_str(), port_.c_str(), &hints, &list) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, ::freeaddrinfo);
  for (const addrinfo* a = list; a; a = a->ai_next) {
    Fd fd(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
    const timeval limit{5, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (fd.get() < 0 || ::connect(fd.get(), a->ai_addr, a->ai_addrlen) != 0) continue;
    const std::string message =
        cat("POST ", path_, " HTTP/1.1\r\nHost: ", host_, ":", port_,
            "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: ", body.size(),
            "\r\n\r\n", body);
    for (size_t at = 0; at < message.size();) {
      const ssize_t n = ::send(fd.get(), message.data() + at, message.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    char answer[64] = {};
    const ssize_t n = ::recv(fd.get(), answer, sizeof answer - 1, 0);
    return n > 12 && std::string_view(answer, static_cast<size_t>(n)).substr(8, 2) == " 2";
  }
  return false;
}

}  // namespace pelton::serve
