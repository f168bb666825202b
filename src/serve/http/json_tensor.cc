// SPDX-License-Identifier: Apache-2.0
#include "serve/http/json_tensor.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "tensor/float_types.h"

namespace pelton::serve {
namespace {

namespace dom = simdjson::dom;

// Numbers of (nested) JSON lists, appended as elements of one type.
class Flattener {
 public:
  Flattener(const TensorValue& tensor, std::string& out) : t_(tensor), out_(out) {}

  void add(dom::element e) {
    if (e.type() == dom::element_type::ARRAY) {
      for (dom::element x : dom::array(e)) add(x);
      return;
    }
    ++count_;
    switch (t_.dtype) {
      case DType::boolean:
        return put<uint8_t>(boolean(e));
      case DType::u8:
        return integer<uint8_t>(e);
      case DType::u16:
        return integer<uint16_t>(e);
      case DType::u32:
        return integer<uint32_t>(e);
      case DType::u64:
        return integer<uint64_t>(e);
      case DType::i8:
        return integer<int8_t>(e);
      case DType::i16:
        return integer<int16_t>(e);
      case DType::i32:
        return integer<int32_t>(e);
      case DType::i64:
        return integer<int64_t>(e);
      case DType::f16:
        return put<uint16_t>(f16_from_float(static_cast<float>(number(e, 65520))));
      case DType::bf16:
        return put<uint16_t>(bf16_from_float(static_cast<float>(number(e, 0x1.ffp127))));
      case DType::f32:
        return put<float>(static_cast<float>(number(e, 0x1.ffffffp127)));
      case DType::f64:
        return put<double>(number(e, std::numeric_limits<double>::infinity()));
      case DType::string: {
        std::string_view s;
        if (e.get(s)) wrong("strings");
        return append_bytes_element(out_, s);
      }
      default:
        wrong("a known type");
    }
  }
  int64_t count() const { return count_; }

 private:
  [[noreturn]] void wrong(std::string_view expected) const {
    fail(ErrorCode::bad_type, cat("data of input '", t_.name, "' of type ", wire_name(t_.dtype), " expects ",
                                  expected, " at element ", count_ - 1));
  }
  template <class T>
  void put(T v) {
    char bytes[sizeof v];
    std::memcpy(bytes, &v, sizeof v);
    out_.append(bytes, sizeof v);
  }
  bool boolean(dom::element e) const {
    bool b;
    if (!e.get(b)) return b;
    int64_t n;
    if (!e.get(n) && (n == 0 || n == 1)) return n == 1;
    wrong("booleans");
  }
  // `beyond`: the smallest size that the type rounds to infinity.
  double number(dom::element e, double beyond) const {
    double d;
    if (e.get(d)) wrong("numbers");
    if (d >= beyond || d <= -beyond) wrong("numbers in range");
    return d;
  }
  template <class T>
  void integer(dom::element e) {
    int64_t s;
    uint64_t u;
    if (!e.get(s)) {
      if constexpr (std::is_unsigned_v<T>) {
        if (s < 0 || static_cast<uint64_t>(s) > std::numeric_limits<T>::max()) wrong("integers in range");
      } else {
        if (s < std::numeric_limits<T>::min() || s > std::numeric_limits<T>::max())
          wrong("integers in range");
      }
      return put<T>(static_cast<T>(s));
    }
    if (std::is_same_v<T, uint64_t> && !e.get(u)) return put<T>(static_cast<T>(u));
    wrong(e.is<uint64_t>() ? "integers in range" : "integers");
  }

  const TensorValue& t_;
  std::string& out_;
  int64_t count_ = 0;
};

template <class T>
T load(const char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

void append_real(std::string& out, double v, bool single, const TensorValue& t) {
  if (!std::isfinite(v))
    fail(ErrorCode::numeric, cat("output '", t.name, "' holds ", v, ", which JSON cannot carry"), "",
         "ask for the output as binary data");
  if (!single) return append(out, v);
  char digits[32];  // as many as tell it from other f32
  const auto end = std::to_chars(digits, digits + sizeof digits, static_cast<float>(v)).ptr;
  out.append(digits, end);
}

}  // namespace

int64_t read_elements(const TensorValue& tensor, dom::element list, std::string& out) {
  Flattener flat(tensor, out);
  flat.add(list);
  return flat.count();
}

void append_escaped(std::string& out, std::string_view s) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (u < 32)
      out += "\\u00", out += kHex[u >> 4], out += kHex[u & 15];
    else
      out += c;
  }
  out += '"';
}

void append_elements(std::string& out, const TensorValue& t) {
  out += '[';
  if (t.dtype == DType::string) {
    bool first = true;
    for (std::string_view s : split_bytes(t.data.data, t.data.size)) {
      if (!first) out += ',';
      first = false;
      if (!simdjson::validate_utf8(s.data(), s.size()))
        fail(ErrorCode::bad_format,
             cat("output '", t.name, "' holds bytes that are not UTF-8, which JSON cannot carry"), "",
             "ask for the output as binary data");
      append_escaped(out, s);
    }
    out += ']';
    return;
  }
  const size_t width = static_cast<size_t>(bits(t.dtype)) / 8;
  const size_t n = width ? t.data.size / width : 0;
  for (size_t i = 0; i < n; ++i) {
    if (i) out += ',';
    const char* p = t.data.data + i * width;
    switch (t.dtype) {
      case DType::boolean:
        append(out, *p != 0);
        break;
      case DType::u8:
        append(out, load<uint8_t>(p));
        break;
      case DType::u16:
        append(out, load<uint16_t>(p));
        break;
      case DType::u32:
        append(out, load<uint32_t>(p));
        break;
      case DType::u64:
        append(out, load<uint64_t>(p));
        break;
      case DType::i8:
        append(out, static_cast<int>(load<int8_t>(p)));
        break;
      case DType::i16:
        append(out, load<int16_t>(p));
        break;
      case DType::i32:
        append(out, load<int32_t>(p));
        break;
      case DType::i64:
        append(out, load<int64_t>(p));
        break;
      case DType::f16:
        append_real(out, f16_to_float(load<uint16_t>(p)), true, t);
        break;
      case DType::bf16:
        append_real(out, bf16_to_float(load<uint16_t>(p)), true, t);
        break;
      case DType::f32:
        append_real(out, load<float>(p), true, t);
        break;
      case DType::f64:
        append_real(out, load<double>(p), false, t);
        break;
      default:
        fail(ErrorCode::bad_type,
             cat("output '", t.name, "' has type ", name(t.dtype), ", which the protocol lacks"));
    }
  }
  out += ']';
}

}  // namespace pelton::serve
