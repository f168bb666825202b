// SPDX-License-Identifier: Apache-2.0
#include "data/source/http.h"

#include "base/error.h"
#include "data/source/source.h"
#if PELTON_HAVE_CURL
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/json_number.h"
#include "data/source/http_request.h"
#include "data/source/s3.h"
#endif

namespace pelton::data {

#if PELTON_HAVE_CURL
namespace {

// Waits before another try, longer each time.
void pause(int64_t& wait_ms, const std::string& url) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  while (std::chrono::steady_clock::now() < end) {
    if (given_up()) fail(ErrorCode::cancelled, "the pipeline was closed", url);
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min<int64_t>(wait_ms, 20)));
  }
  wait_ms = std::min<int64_t>(2 * wait_ms, 5000);
}

// WebHDFS has operations instead of ranges.
bool is_web_hdfs(const std::string& url) {
  return url.find("/webhdfs/v1/") != url.npos;
}
std::string operation(const std::string& url, const std::string& query) {
  return cat(url, url.find('?') == url.npos ? "?" : "&", query);
}
int64_t length_of(const std::string& status, const std::string& url) {
  const auto j = nlohmann::json::parse(status, nullptr, false);
  const auto file = j.is_object() ? j.find("FileStatus") : j.end();
  if (file == j.end() || !file->is_object() || !file->contains("length") || file->value("type", "") != "FILE")
    fail(ErrorCode::io, cat("the server's answer describes no file: ", status.substr(0, 200)), url);
  return json_integer((*file)["length"]);
}

}  // namespace

HttpFile::HttpFile(std::string url, HttpLimits limits) : url_(std::move(url)), limits_(limits) {
  if (is_s3(url_)) s3_ = std::make_shared<const S3Address>(s3_address(url_));
  uint8_t first = 0;
  int64_t wait = limits_.wait_ms;
  for (int attempt = 1;; ++attempt) {
    Transfer t;
    t.s3 = s3_.get();
    std::string status;
    bool final = false;
    if (is_web_hdfs(url_))
      t.wanted = 200, t.text = &status;
    else
      t.into = {&first, 1};
    const std::string why = request(t.text ? operation(url_, "op=GETFILESTATUS")
                                    : s3_  ? s3_->url
                                           : url_,
                                    limits_, 0, t, final);
    if (t.status == 416) return;  // empty
    if (why.empty() && t.text) t.total = length_of(status, url_);
    if (why.empty() && t.total < 0)
      fail(ErrorCode::io, "the server does not say how large the file is", url_);
    if (why.empty()) {
      size_ = t.total;
      tag_ = t.tag.empty() ? t.date : t.tag;
      return;
    }
    if (final || attempt >= limits_.tries)
      fail(t.status == 404 ? ErrorCode::not_found : ErrorCode::io,
           cat(why, attempt > 1 ? cat(", after ", attempt, " tries") : std::string()), url_,
           !t.refused.empty() ? "set PELTON_HTTP_ALLOW to the host if it may be read"
           : s3_ && !s3_->signs() && t.status == 403
               ? "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: the request was not signed"
               : "");
    pause(wait, url_);
  }
}

void HttpFile::read(int64_t offset, std::span<uint8_t> into) const {
  int64_t wait = limits_.wait_ms;
  for (int idle = 0; !into.empty();) {
    Transfer t;
    t.into = into;
    t.s3 = s3_.get();
    bool final = false;
    std::string target = s3_ ? s3_->url : url_;
    if (is_web_hdfs(url_)) {
      t.wanted = 200;
      target = operation(url_, cat("op=OPEN&offset=", offset, "&length=", into.size()));
    }
    const std::string why = request(target, limits_, offset, t, final);
    const std::string& tag = t.tag.empty() ? t.date : t.tag;
    if (t.status == 206 &&
        ((t.total >= 0 && t.total != size_) || (!tag_.empty() && !tag.empty() && tag != tag_)))
      fail(ErrorCode::io,
           cat("the file has changed: ", t.total, " bytes, but ", size_, " when it was opened"), url_,
           "do not change files while they are read");
    if (why.empty()) return;
    if (t.received > 0) {  // what came is good; go on behind it
      offset += static_cast<int64_t>(t.received);
      into = into.subspan(t.received);
      idle = 0;
      wait = limits_.wait_ms;
    } else {
      ++idle;
    }
    if (final || idle >= limits_.tries)
      fail(ErrorCode::io, cat(why, idle > 1 ? cat(", after ", idle, " tries") : std::string()),
           cat(url_, " at byte ", offset));
    pause(wait, url_);
  }
}

#else
HttpFile::HttpFile(std::string url, HttpLimits) {
  fail(ErrorCode::unsupported_op, "this build cannot read URLs", url,
       "install the libcurl headers and rebuild");
}
void HttpFile::read(int64_t, std::span<uint8_t>) const {}
#endif

}  // namespace pelton::data
