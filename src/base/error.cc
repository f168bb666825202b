// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <array>
#include <cmath>

namespace pelton {

void append(std::string& out, double v) {
  if (std::isnan(v)) return append(out, std::signbit(v) ? "-nan" : "nan");
  if (std::isinf(v)) return append(out, v < 0 ? "-inf" : "inf");
  char buffer[32];
  auto r = std::to_chars(buffer, buffer + sizeof buffer, v);
  out.append(buffer, r.ptr);
}

std::string_view to_string(ErrorCode code) {
  static constexpr std::array<std::string_view, 21> names = {
      "usage",          "not_found",   "io",        "disk_full", "bad_format", "unsupported_version",
      "unsupported_op", "bad_type",    "bad_shape", "bad_name",  "limit",      "out_of_memory",
      "no_device",      "device_lost", "driver",    "plugin",    "cancelled",  "deadline",
      "numeric",        "busy",        "internal"};
  return names[static_cast<size_t>(code)];
}

Error::Error(ErrorCode code, std::string what, std::string where, std::string fix)
    : code_(code), message_(std::move(what)), where_(std::move(where)), fix_(std::move(fix)) {
  // Names in files may be of any length and hold control characters, which a terminal would obey.
  constexpr size_t kLongest = 2000, kEnd = 200;
  if (message_.size() > kLongest) message_.replace(kLongest - kEnd, message_.size() - kLongest, " ... ");
  line_ = message_;
  if (!where_.empty()) append(line_, cat(" (", where_, ")"));
  if (!fix_.empty()) append(line_, cat(": ", fix_));
  for (char& c : line_)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
}

Error Error::within(std::string_view outer) const {
  if (outer.empty()) return *this;
  if (where_.empty()) return Error(code_, message_, std::string(outer), fix_);
  // Functions that call one another may nest deeply: the outermost and the innermost places stay.
  constexpr size_t kLong = 300, kKept = 200;
  size_t from = 0;
  if (where_.size() > kLong)
    if (size_t at = where_.find(": ", where_.size() - kKept); at != where_.npos) from = at + 2;
  return Error(code_, message_, cat(outer, from ? ": ... " : ": ", where_.substr(from)), fix_);
}

void fail(ErrorCode code, std::string what, std::string where, std::string fix) {
  throw Error(code, std::move(what), std::move(where), std::move(fix));
}

void fail_check(const char* file, int line, const char* condition, std::string message) {
  std::string_view path(file);
  if (auto at = path.rfind("src/"); at != path.npos) path.remove_prefix(at);
  throw Error(ErrorCode::internal, cat("internal error: ", condition, message.empty() ? "" : ": ", message),
              cat(path, ":", line), "please report this with the command and its input");
}

}  // namespace pelton
