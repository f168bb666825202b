// SPDX-License-Identifier: Apache-2.0
#include "data/source/s3.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace pelton::data {
namespace {

constexpr std::string_view kScheme = "s3://";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// A part of a host name: what a bucket or a region may be, and nothing that could end it.
bool is_name(std::string_view s) {
  return !s.empty() && s.size() < 64 && letter_or_digit(s.front()) && std::ranges::all_of(s, [](char c) {
    return letter_or_digit(c) || c == '.' || c == '-' || c == '_';
  });
}

std::string encoded(std::string_view key) {
  constexpr char digits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : key) {
    if (letter_or_digit(c) || c == '/' || c == '-' || c == '_' || c == '.' || c == '~') {
      out += c;
    } else {
      const auto byte = static_cast<uint8_t>(c);
      out += '%';
      out += digits[byte >> 4];
      out += digits[byte & 15];
    }
  }
  return out;
}

}  // namespace

bool is_s3(std::string_view url) {
  return url.starts_with(kScheme);
}

S3Address s3_address(const std::string& url) {
  const std::string_view rest = std::string_view(url).substr(kScheme.size());
  const size_t slash = rest.find('/');
  const std::string_view bucket = rest.substr(0, slash),
                         key = slash == rest.npos ? std::string_view() : rest.substr(slash + 1);
  if (!is_name(bucket) || key.empty())
    fail(ErrorCode::usage, "this names no object of a bucket", url, "write s3://BUCKET/KEY");
  S3Address a;
  a.key_id = variable("AWS_ACCESS_KEY_ID");
  a.secret = variable("AWS_SECRET_ACCESS_KEY");
  a.token = variable("AWS_SESSION_TOKEN");
  if (a.key_id.empty() != a.secret.empty())
    fail(ErrorCode::usage, "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set", url,
         "set both, or none for public objects");
  a.region = variable("AWS_REGION");
  if (a.region.empty()) a.region = variable("AWS_DEFAULT_REGION");
  if (a.region.empty()) a.region = "us-east-1";
  if (!is_name(a.region)) fail(ErrorCode::usage, cat("AWS_REGION is '", a.region, "', no region"), url);
  std::string endpoint = variable("AWS_ENDPOINT_URL");
  while (endpoint.ends_with('/')) endpoint.pop_back();
  // A certificate of all buckets covers no bucket with a dot.
  if (!endpoint.empty())
    a.url = cat(endpoint, "/", bucket, "/", encoded(key));
  else if (bucket.find('.') != bucket.npos)
    a.url = cat("https://s3.", a.region, ".amazonaws.com/", bucket, "/", encoded(key));
  else
    a.url = cat("https://", bucket, ".s3.", a.region, ".amazonaws.com/", encoded(key));
  return a;
}

}  // namespace pelton::data
