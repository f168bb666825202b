// SPDX-License-Identifier: Apache-2.0
// The bodies of management requests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "serve/core/request.h"

namespace pelton::serve {

// A whole JSON text to the parameters of a management request: {"parameters": {...}} (also absent or empty).
Parameters read_parameters(const Blob& body);
// {"key": "/k", "offset": 0, "byte_size": 64} of a registration.
struct RegionRequest {
  std::string key;
  uint64_t offset = 0, size = 0;
  std::string raw_handle;  // of GPU memory, in base64
  int64_t device = 0;
};
RegionRequest read_region_request(const Blob& body);
// {"ready": true} of an index request.
bool read_ready_flag(const Blob& body);
// The text of `body` if it is a JSON object within the depth limit, else bad_format.
std::string_view checked_json_object(const Blob& body);

}  // namespace pelton::serve
