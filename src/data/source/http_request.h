// SPDX-License-Identifier: Apache-2.0
// One request for bytes by HTTP or HTTPS: which addresses may be reached, redirects, signatures. Nothing is
// tried again here (data/source/http.h does).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/source/http.h"

namespace pelton::data {

constexpr size_t kUnwanted = 1 << 16;  // bytes of an error's text that are let pass, and of a description

// What is asked for, and what came.
struct Transfer {
  bool allowed = false;  // the URL's own host is on the list
  std::string refused;   // an address that is not
  std::span<uint8_t> into;
  size_t received = 0, unwanted = 0;
  long status = 0;
  int64_t total = -1, start = -1;  // of Content-Range
  std::string tag, date;
  long wanted = 206;              // 200: the URL itself says which part
  std::string* text = nullptr;    // takes the body instead of `into`, at most kUnwanted bytes
  const S3Address* s3 = nullptr;  // signs what goes to its host
};

// "": done. Else why not; `final`: trying again will not help. A cancelled error when the pipeline closes.
std::string request(const std::string& url, const HttpLimits& limits, int64_t offset, Transfer& t,
                    bool& final);

}  // namespace pelton::data
