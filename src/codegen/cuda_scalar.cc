// SPDX-License-Identifier: Apache-2.0
#include "codegen/cuda_scalar.h"

#include <cmath>

#include "base/cat.h"

namespace pelton::codegen {

std::string_view storage_type(DType t) {
  switch (t) {
    case DType::f64:
      return "double";
    case DType::f32:
      return "float";
    case DType::f16:
    case DType::bf16:
    case DType::u16:
      return "unsigned short";
    case DType::i64:
      return "k_s64";
    case DType::i32:
      return "int";
    case DType::i16:
      return "short";
    case DType::i8:
      return "signed char";
    case DType::u64:
      return "k_u64";
    case DType::u32:
      return "unsigned";
    default:
      return "unsigned char";  // u8, bool
  }
}
std::string_view scalar_type(DType t) {
  if (t == DType::f64) return "double";
  if (is_float(t)) return "float";
  if (t == DType::boolean) return "bool";
  return is_signed_int(t) ? "k_s64" : "k_u64";
}

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}
std::string with_prefix(std::string_view text, std::string_view prefix) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end == i) {
      out += text[i++];
      continue;
    }
    if (end < text.size() && text[end] == '(') out += prefix;
    out += text.substr(i, end - i);
    i = end;
  }
  return out;
}

std::string number(DType t, double real, int64_t integer) {
  if (t == DType::boolean) return integer ? "true" : "false";
  if (!is_float(t))
    return integer == INT64_MIN && is_signed_int(t) ? "(-9223372036854775807LL - 1)"  // no literal is as low
           : is_signed_int(t)                       ? cat("(k_s64)", integer, "LL")
                                                    : cat("(k_u64)", static_cast<uint64_t>(integer), "ULL");
  if (std::isnan(real)) return "K_NAN";
  if (std::isinf(real)) return real < 0 ? "-INFINITY" : "INFINITY";
  std::string s = cat(t == DType::f64 ? real : static_cast<double>(static_cast<float>(real)));
  if (s.find_first_of(".e") == s.npos) s += ".0";
  return t == DType::f64 ? s : s + "f";
}
std::string to_type(DType t, const std::string& value) {
  if (t == DType::f16) return cat("k_round_f16(", value, ")");
  if (t == DType::bf16) return cat("k_round_bf16(", value, ")");
  if (is_float(t) || t == DType::boolean || bits(t) == 64) return value;
  return cat("(", scalar_type(t), ")(", storage_type(t), ")(", value, ")");
}

std::string cast_text(DType from, DType to, const std::string& x) {
  if (to == DType::boolean) return cat(x, " != 0");
  if (is_float(to)) {
    if (is_float(from)) return to_type(to, to == DType::f32 && from == DType::f64 ? cat("(float)", x) : x);
    std::string wide = from == DType::boolean ? cat("(k_s64)", x) : x;
    return to == DType::f64   ? cat("(double)", wide)
           : to == DType::f32 ? cat("(float)", wide)
                              : to_type(to, cat("(double)", wide));
  }
  if (!is_float(from)) return to_type(to, cat("(", scalar_type(to), ")", x));
  if (is_signed_int(to)) {
    int64_t high = INT64_MAX >> (64 - bits(to));
    return cat("k_to_signed(", x, ", ", -high, "LL - 1, ", high, "LL)");
  }
  return cat("k_to_unsigned(", x, ", ", UINT64_MAX >> (64 - bits(to)), "ULL)");
}

std::string neutral(std::string_view op, DType t) {
  if (op == "sum") return number(t, 0, 0);
  if (op == "prod") return number(t, 1, 1);
  bool max = op == "max";
  if (is_float(t)) return number(t, max ? -INFINITY : INFINITY, 0);
  if (is_unsigned_int(t)) return max ? number(t, 0, 0) : cat(UINT64_MAX >> (64 - bits(t)), "ULL");
  int64_t high = INT64_MAX >> (64 - bits(t));
  return max ? cat("(", -high, "LL - 1)") : cat(high, "LL");
}

}  // namespace pelton::codegen
