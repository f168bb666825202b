// SPDX-License-Identifier: Apache-2.0
// What every fuzz target shares: bytes go to a parser; an Error that blames the input is the right answer to
// bad bytes, an internal one, a crash, a leak or a time-out is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace pelton::fuzz {

inline uint64_t accepted = 0;  // inputs that the parser took

template <class F>
int feed(const uint8_t* data, size_t size, F&& parse) {
  try {
    parse(std::string_view(reinterpret_cast<const char*>(data), size));
    ++accepted;
  } catch (const Error& e) {
    if (e.code() == ErrorCode::internal) {
      std::fprintf(stderr, "internal error on fuzzed input: %s\n", e.what());
      std::abort();
    }
  }
  return 0;
}

}  // namespace pelton::fuzz
