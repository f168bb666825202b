// SPDX-License-Identifier: Apache-2.0
// Steps on 64-bit integers, doubles and booleans. Their values are those of the op table exactly: common ops
// are loops, the others call the table's scalar function.
#include <cmath>

#include "backend/cpu/tile/step.h"

namespace pelton::backend::cpu {
namespace {

template <class T>
const T* in(const Step& s, int i) {
  return static_cast<const T*>(s.in[i]);
}
template <class T>
T* out(const Step& s) {
  return static_cast<T*>(s.out);
}

template <class T, class R, class F>
void loop2(const Step& s, int64_t n, F f) {
  const T *a = in<T>(s, 0), *b = in<T>(s, 1);
  R* y = out<R>(s);
  if (s.one[0]) {
    const T x = *a;
    for (int64_t i = 0; i < n; ++i) y[i] = f(x, s.one[1] ? *b : b[i]);
  } else if (s.one[1]) {
    const T x = *b;
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], x);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
  }
}

uint64_t u(int64_t v) {
  return static_cast<uint64_t>(v);
}
int64_t s64(uint64_t v) {
  return static_cast<int64_t>(v);
}

struct Named {
  std::string_view op;
  StepFunction f;
};
#define LOOP2(T, R, name, ...)                                                      \
  {                                                                                 \
    name, [](const Step& s, int64_t n) {                                            \
      loop2<T, R>(s, n, [](T x, T y) -> R { return static_cast<R>(__VA_ARGS__); }); \
    }                                                                               \
  }
// Max, min and order are left to the scalar calls: u64 shares these lanes.
constexpr Named kInts[] = {
    LOOP2(int64_t, int64_t, "add", s64(u(x) + u(y))),
    LOOP2(int64_t, int64_t, "sub", s64(u(x) - u(y))),
    LOOP2(int64_t, int64_t, "mul", s64(u(x) * u(y))),
    LOOP2(int64_t, int64_t, "and", x& y),
    LOOP2(int64_t, int64_t, "or", x | y),
    LOOP2(int64_t, int64_t, "xor", x ^ y),
    LOOP2(int64_t, uint8_t, "eq", x == y),
    LOOP2(int64_t, uint8_t, "ne", x != y),
};
constexpr Named kDoubles[] = {
    LOOP2(double, double, "add", x + y),  LOOP2(double, double, "sub", x - y),
    LOOP2(double, double, "mul", x* y),   LOOP2(double, double, "div", x / y),
    LOOP2(double, uint8_t, "eq", x == y), LOOP2(double, uint8_t, "ne", x != y),
    LOOP2(double, uint8_t, "lt", x < y),  LOOP2(double, uint8_t, "gt", x > y),
};
constexpr Named kBooleans[] = {
    LOOP2(uint8_t, uint8_t, "and", x& y),  LOOP2(uint8_t, uint8_t, "or", x | y),
    LOOP2(uint8_t, uint8_t, "xor", x ^ y), LOOP2(uint8_t, uint8_t, "eq", x == y),
    LOOP2(uint8_t, uint8_t, "ne", x != y), LOOP2(uint8_t, uint8_t, "max", x | y),
    LOOP2(uint8_t, uint8_t, "min", x& y),
};
#undef LOOP2

template <class T, class X, class F>
void call(const Step& s, int64_t n, F f) {
  const WideInfo& w = *s.wide;
  for (int64_t i = 0; i < n; ++i) {
    X x[3] = {};
    for (int k = 0; k < w.arity; ++k) x[k] = static_cast<X>(in<T>(s, k)[s.one[k] ? 0 : i]);
    f(i, x);
  }
}
void scalar_call(const Step& s, int64_t n) {
  const WideInfo& w = *s.wide;
  const ir::ScalarDef& def = *w.scalar;
  auto real = [&](int64_t i, const double* x) {
    double v = def.real(x);
    if (def.yields_bool)
      out<uint8_t>(s)[i] = v != 0;
    else if (w.lane == Lane::f32)
      out<float>(s)[i] = static_cast<float>(v);
    else
      out<double>(s)[i] = v;
  };
  switch (w.lane) {
    case Lane::f32:
      return call<float, double>(s, n, real);
    case Lane::f64:
      return call<double, double>(s, n, real);
    case Lane::boolean:
      return call<uint8_t, bool>(s, n,
                                 [&](int64_t i, const bool* x) { out<uint8_t>(s)[i] = def.boolean(x); });
    case Lane::i64:
      break;
  }
  if (is_unsigned_int(w.dtype))
    return call<uint64_t, uint64_t>(s, n, [&](int64_t i, const uint64_t* x) {
      if (def.yields_bool)
        out<uint8_t>(s)[i] = def.uint(x) != 0;
      else
        out<uint64_t>(s)[i] = def.uint(x);
    });
  call<int64_t, int64_t>(s, n, [&](int64_t i, const int64_t* x) {
    if (def.yields_bool)
      out<uint8_t>(s)[i] = def.sint(x) != 0;
    else
      out<int64_t>(s)[i] = def.sint(x);
  });
}

template <class T>
void select_lane(const Step& s, int64_t n) {
  const uint8_t* c = in<uint8_t>(s, 0);
  const T *a = in<T>(s, 1), *b = in<T>(s, 2);
  const int64_t sc = !s.one[0], sa = !s.one[1], sb = !s.one[2];
  for (int64_t i = 0; i < n; ++i) out<T>(s)[i] = c[i * sc] ? a[i * sa] : b[i * sb];
}

// Truncates towards zero, saturates to the range of the dtype, NaN is 0.
template <class T>
void real_to_int(const Step& s, int64_t n) {
  const DType to = s.wide->dtype;
  const double low = lowest(to), high = highest(to);
  // The largest values of 64-bit types are not doubles: from this bound on the result is the largest value.
  const bool wide = bits(to) == 64;
  const int64_t top = to == DType::u64 ? -1 : to == DType::i64 ? INT64_MAX : static_cast<int64_t>(high);
  for (int64_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(in<T>(s, 0)[i]);
    int64_t r;
    if (std::isnan(v))
      r = 0;
    else if (v >= high)
      r = top;
    else if (v <= low)
      r = is_unsigned_int(to) ? 0 : static_cast<int64_t>(low);
    else if (wide && to == DType::u64)
      r = s64(static_cast<uint64_t>(v));
    else
      r = static_cast<int64_t>(v);
    out<int64_t>(s)[i] = r;
  }
}
template <class T, class R>
void plain_convert(const Step& s, int64_t n) {
  const T* x = in<T>(s, 0);
  R* y = out<R>(s);
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<R>(x[i]);
}
template <class T>
void to_boolean(const Step& s, int64_t n) {
  const T* x = in<T>(s, 0);
  for (int64_t i = 0; i < n; ++i) out<uint8_t>(s)[i] = x[i] != 0;
}

}  // namespace

StepFunction wide_step(std::string_view op, Lane lane) {
  auto look = [&](const auto& table) -> StepFunction {
    for (const Named& row : table)
      if (row.op == op) return row.f;
    return scalar_call;
  };
  switch (lane) {
    case Lane::i64:
      return look(kInts);
    case Lane::f64:
      return look(kDoubles);
    case Lane::boolean:
      return look(kBooleans);
    case Lane::f32:
      break;
  }
  return scalar_call;
}

StepFunction select_step(Lane lane) {
  switch (lane) {
    case Lane::f32:
      return select_lane<float>;
    case Lane::f64:
      return select_lane<double>;
    case Lane::i64:
      return select_lane<int64_t>;
    case Lane::boolean:
      break;
  }
  return select_lane<uint8_t>;
}

StepFunction convert_step(Lane from, Lane to) {
  static constexpr StepFunction kTable[4][4] = {
      {plain_convert<float, float>, plain_convert<float, double>, real_to_int<float>, to_boolean<float>},
      {plain_convert<double, float>, plain_convert<double, double>, real_to_int<double>, to_boolean<double>},
      {plain_convert<int64_t, float>, plain_convert<int64_t, double>, plain_convert<int64_t, int64_t>,
       to_boolean<int64_t>},
      {plain_convert<uint8_t, float>, plain_convert<uint8_t, double>, plain_convert<uint8_t, int64_t>,
       plain_convert<uint8_t, uint8_t>}};
  return kTable[static_cast<int>(from)][static_cast<int>(to)];
}

void wrap_step(const Step& s, int64_t n) {
  const int64_t* x = in<int64_t>(s, 0);
  int64_t* y = out<int64_t>(s);
  const int shift = 64 - bits(s.wide->dtype);
  if (is_unsigned_int(s.wide->dtype))
    for (int64_t i = 0; i < n; ++i) y[i] = s64(u(x[i]) << shift >> shift);
  else
    for (int64_t i = 0; i < n; ++i) y[i] = s64(u(x[i]) << shift) >> shift;
}

}  // namespace pelton::backend::cpu
