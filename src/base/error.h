// SPDX-License-Identifier: Apache-2.0
// The one exception type. An Error is the caller's mistake or a condition outside Pelton (code != internal),
// or a bug in Pelton (code == internal; PELTON_CHECK adds file, line and condition).
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "base/cat.h"

namespace pelton {

// Stable in C, C++, JSON and the server. Append only.
enum class ErrorCode {
  usage,
  not_found,
  io,
  disk_full,
  bad_format,
  unsupported_version,
  unsupported_op,
  bad_type,
  bad_shape,
  bad_name,
  limit,
  out_of_memory,
  no_device,
  device_lost,
  driver,
  plugin,
  cancelled,
  deadline,
  numeric,
  busy,
  internal,
};
std::string_view to_string(ErrorCode code);

// One line for people: what went wrong, where (file, node, field), how to fix it.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string what, std::string where = {}, std::string fix = {});
  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& where() const { return where_; }
  const std::string& fix() const { return fix_; }
  const char* what() const noexcept override { return line_.c_str(); }  // "<what> (<where>): <fix>"
  // The same error with a place in front of its own ("file: node"); parts that are empty are left out.
  Error within(std::string_view outer) const;

 private:
  ErrorCode code_;
  std::string message_, where_, fix_, line_;
};

[[noreturn]] void fail(ErrorCode code, std::string what, std::string where = {}, std::string fix = {});
[[noreturn]] void fail_check(const char* file, int line, const char* condition, std::string message);

// Runs f; an Error that leaves it gains `outer` as its outermost place.
template <class F>
decltype(auto) with_place(std::string_view outer, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    throw e.within(outer);
  }
}

}  // namespace pelton

// States an invariant of Pelton itself; breaking it is a bug and is reported as one.
#define PELTON_CHECK(condition, ...)                                                    \
  do {                                                                                  \
    if (!(condition)) [[unlikely]]                                                      \
      ::pelton::fail_check(__FILE__, __LINE__, #condition, ::pelton::cat(__VA_ARGS__)); \
  } while (0)
