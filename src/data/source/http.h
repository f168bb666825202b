// SPDX-License-Identifier: Apache-2.0
// Files behind HTTP and HTTPS, read by ranges. Failures that pass (drops, cut bodies, silence, 429 and 5xx)
// are tried again, from the byte that is missing. A WebHDFS file (/webhdfs/v1/ in its path) is read
// by that protocol's operations, s3:// by signed requests (data/source/s3.h). libcurl is opened when the
// first URL is.
//
// Whoever runs the process says what may be reached, never the pipeline file: addresses of this machine and
// of private networks are refused unless PELTON_HTTP_ALLOW (host names and addresses, comma-separated) names
// the URL's host or the address; that holds for redirects too.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace pelton::data {

bool is_url(std::string_view path);

struct HttpLimits {
  int tries = 6;           // in a row without a byte of progress
  int64_t wait_ms = 100;   // before the second try; doubles up to 5 s
  int64_t silence_s = 15;  // without a byte, and to connect
};

struct S3Address;

class HttpFile {
 public:
  explicit HttpFile(std::string url, HttpLimits limits = {});
  int64_t size() const { return size_; }
  // All of [offset, offset + into.size()), which must lie in the file. Any thread.
  void read(int64_t offset, std::span<uint8_t> into) const;

 private:
  std::string url_, tag_;                // ETag or date: the file must stay the same
  std::shared_ptr<const S3Address> s3_;  // of an s3:// URL
  HttpLimits limits_;
  int64_t size_ = 0;
};

// Loopback, link-local, private and other addresses that only this site can mean. Text form, v4 or v6.
bool is_private_address(std::string_view address);

}  // namespace pelton::data
