// SPDX-License-Identifier: Apache-2.0
#include "base/json_number.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace pelton {
namespace {

template <class Json>
[[noreturn]] void refuse(const Json& j, std::string_view want) {
  fail(ErrorCode::bad_format, cat("expected ", want, ", got ",
                                  j.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60)));
}

template <class Json>
int64_t integer(const Json& j) {
  if (j.is_number_float()) {
    const double v = j.template get<double>();
    if (v == std::trunc(v) && std::fabs(v) < 0x1p53) return static_cast<int64_t>(v);
  } else if (j.is_number_integer() && (!j.is_number_unsigned() || j.template get<uint64_t>() <= INT64_MAX)) {
    return j.template get<int64_t>();
  }
  refuse(j, "a whole number");
}

}  // namespace

int64_t json_integer(const nlohmann::json& j) {
  return integer(j);
}
int64_t json_integer(const nlohmann::ordered_json& j) {
  return integer(j);
}

uint64_t json_unsigned(const nlohmann::json& j) {
  if (j.is_number_unsigned()) return j.get<uint64_t>();
  if (!j.is_number() || integer(j) < 0) refuse(j, "a whole number of at least 0");
  return static_cast<uint64_t>(integer(j));
}

std::vector<int64_t> json_integers(const nlohmann::json& list) {
  if (!list.is_array()) refuse(list, "a list of whole numbers");
  std::vector<int64_t> out;
  for (const auto& j : list) out.push_back(integer(j));
  return out;
}

}  // namespace pelton
