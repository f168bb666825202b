// SPDX-License-Identifier: Apache-2.0
// TOML texts, read by toml++ (3.3): the one place that includes it. On some wrong texts the library's
// assertions fail where an error belongs, and without them it goes on with what cannot be; so they are kept
// in every build, as errors.
#pragma once

#include <string>
#include <string_view>

#include "base/cat.h"
#include "base/error.h"
#include "base/toml_text.h"

#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_EXCEPTIONS 1
#define TOML_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::pelton::fail(::pelton::ErrorCode::bad_format, "this is not TOML"))
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace pelton {

// The table that `text` holds; fails with bad_format at `where` and, where it is known, the line.
inline toml::table parse_toml(std::string_view text, std::string_view where) {
  check_toml_text(text, where);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& e) {
    fail(ErrorCode::bad_format, std::string(e.description()), cat(where, " line ", e.source().begin.line));
  } catch (const Error& e) {
    throw e.within(where);
  }
}

}  // namespace pelton
