// SPDX-License-Identifier: Apache-2.0
// Reading JSON of clients; for the sources that do, not for other headers: the library's own is large.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string_view>

#include "serve/core/request.h"

namespace pelton::serve {

inline constexpr size_t kMaxJsonDepth = 64;

// The thread's parser: what it returns is valid until the next text or the end of the lease, whichever comes
// first. A parser that grew with a large text is dropped then.
class ParserLease {
 public:
  ParserLease() = default;
  ~ParserLease();
  ParserLease(const ParserLease&) = delete;
  ParserLease& operator=(const ParserLease&) = delete;
  // `json` has kBodyPadding readable bytes behind it. bad_format if it is none, limit if it is too deep.
  simdjson::dom::element parse(const char* json, size_t size);
};

// The value if it is of that type, else bad_format that says what `what` or parameter `name` expects.
std::string_view text_of(simdjson::dom::element e, std::string_view what);
simdjson::dom::object object_of(simdjson::dom::element e, std::string_view what);
simdjson::dom::array array_of(simdjson::dom::element e, std::string_view what);
Parameter parameter_of(std::string_view name, simdjson::dom::element e);
uint64_t size_of(std::string_view name, simdjson::dom::element e);
bool flag_of(std::string_view name, simdjson::dom::element e);

}  // namespace pelton::serve
