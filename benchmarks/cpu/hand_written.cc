// SPDX-License-Identifier: Apache-2.0
#include "cpu/hand_written.h"

#include <cmath>

#include "device/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/hand_written.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::bench::HWY_NAMESPACE {
#include "backend/cpu/simd/math.inc"

using In = const float* const*;

HWY_INLINE VF at(const float* p, int64_t i) {
  return hn::LoadU(DF(), p + i);
}
// Columns are a multiple of the vector in these benchmarks.
template <class F>
HWY_INLINE void each(int64_t rows, int64_t columns, float* out, F f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; c += lanes)
      hn::StoreU(f(r, r * columns + c, c), DF(), out + r * columns + c);
}
void add_relu(In in, float* out, int64_t rows, int64_t columns) {
  each(rows, columns, out, [=](int64_t, int64_t i, int64_t) HWY_ATTR {
    return at_least(0, hn::Add(at(in[0], i), at(in[1], i)));
  });
}
void bias_gelu(In in, float* out, int64_t rows, int64_t columns) {
  each(rows, columns, out, [=](int64_t, int64_t i, int64_t c) HWY_ATTR {
    return gelu_erf_ps(hn::Add(at(in[0], i), at(in[1], c)));
  });
}
void silu_mul(In in, float* out, int64_t rows, int64_t columns) {
  each(rows, columns, out,
       [=](int64_t, int64_t i, int64_t) HWY_ATTR { return hn::Mul(silu_ps(at(in[0], i)), at(in[1], i)); });
}
void scale_shift(In in, float* out, int64_t rows, int64_t columns) {
  each(rows, columns, out, [=](int64_t r, int64_t i, int64_t) HWY_ATTR {
    return hn::MulAdd(at(in[0], i), splat(in[1][r]), splat(in[2][r]));
  });
}
void hard_swish_add(In in, float* out, int64_t rows, int64_t columns) {
  each(rows, columns, out, [=](int64_t, int64_t i, int64_t) HWY_ATTR {
    const VF x = at(in[0], i);
    const VF gate = at_most(1, at_least(0, hn::MulAdd(x, splat(1.0f / 6), splat(0.5f))));
    return hn::MulAdd(x, gate, at(in[1], i));
  });
}
void sub_square(In in, float* out, int64_t rows, int64_t columns) {
  each(rows, columns, out, [=](int64_t, int64_t i, int64_t) HWY_ATTR {
    const VF x = hn::Sub(at(in[0], i), at(in[1], i));
    return hn::Mul(x, x);
  });
}
void lerp(In in, float* out, int64_t rows, int64_t columns) {
  each(rows, columns, out, [=](int64_t, int64_t i, int64_t) HWY_ATTR {
    const VF a = at(in[0], i);
    return hn::MulAdd(hn::Sub(at(in[1], i), a), at(in[2], i), a);
  });
}
void gate_rows(In in, float* out, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = in[0] + r * columns;
    const VF gate = sigmoid_ps(splat(in[1][r]));
    each(1, columns, out + r * columns,
         [=](int64_t, int64_t i, int64_t) HWY_ATTR { return hn::Mul(at(x, i), gate); });
  }
}
void tanh_scale(In in, float* out, int64_t rows, int64_t columns) {
  each(rows, columns, out,
       [=](int64_t, int64_t i, int64_t c) HWY_ATTR { return hn::Mul(tanh_ps(at(in[0], i)), at(in[1], c)); });
}

// Two running vectors each; the sum of a + b is kept in `out`.
template <class F>
HWY_INLINE float fold(const float* p, int64_t n, float start, F f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  VF x = splat(start), y = x;
  for (int64_t i = 0; i < n; i += 2 * lanes) {
    x = f(x, at(p, i));
    y = f(y, at(p, i + lanes));
  }
  alignas(64) float a[16], b[16];
  hn::Store(x, DF(), a);
  hn::Store(y, DF(), b);
  float sum = a[0];
  bool first = true;
  for (int64_t i = 0; i < lanes; ++i) {
    if (!first) sum = hn::GetLane(f(splat(sum), splat(a[i])));
    first = false;
    sum = hn::GetLane(f(splat(sum), splat(b[i])));
  }
  return sum;
}
HWY_INLINE void add_rows(In in, float* out, int64_t r, int64_t n) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t i = 0; i < n; i += lanes)
    hn::StoreU(hn::Add(at(in[0], r * n + i), at(in[1], r * n + i)), DF(), out + i);
}
float sum_of(const float* p, int64_t n) {
  return fold(p, n, 0, [](VF a, VF x) HWY_ATTR { return hn::Add(a, x); });
}
void softmax(In in, float* out, int64_t rows, int64_t n) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t r = 0; r < rows; ++r) {
    float* y = out + r * n;
    add_rows(in, y, r, n);
    const VF top = splat(fold(y, n, -HUGE_VALF, [](VF a, VF x) HWY_ATTR { return max_nan(a, x); }));
    for (int64_t i = 0; i < n; i += lanes) hn::StoreU(exp_ps(hn::Sub(at(y, i), top)), DF(), y + i);
    const VF scale = splat(1 / sum_of(y, n));
    for (int64_t i = 0; i < n; i += lanes) hn::StoreU(hn::Mul(at(y, i), scale), DF(), y + i);
  }
}
void norm(In in, float* out, int64_t rows, int64_t n, bool centred) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const auto count = static_cast<float>(n);
  for (int64_t r = 0; r < rows; ++r) {
    float* y = out + r * n;
    add_rows(in, y, r, n);
    const VF mean = splat(centred ? sum_of(y, n) / count : 0.0f);
    VF sum = splat(0), other = splat(0);
    for (int64_t i = 0; i < n; i += 2 * lanes) {
      const VF c = hn::Sub(at(y, i), mean), d = hn::Sub(at(y, i + lanes), mean);
      sum = hn::MulAdd(c, c, sum);
      other = hn::MulAdd(d, d, other);
    }
    alignas(64) float parts[16];
    hn::Store(hn::Add(sum, other), DF(), parts);
    float total = 0;
    for (int64_t i = 0; i < lanes; ++i) total += parts[i];
    const VF scale = splat(1 / std::sqrt(total / count + 1e-5f));
    for (int64_t i = 0; i < n; i += lanes) {
      const VF x = hn::Mul(hn::Sub(at(y, i), mean), scale);
      hn::StoreU(centred ? hn::MulAdd(x, at(in[2], i), at(in[3], i)) : hn::Mul(x, at(in[2], i)), DF(), y + i);
    }
  }
}
void add_layer_norm(In in, float* out, int64_t rows, int64_t n) {
  norm(in, out, rows, n, true);
}
void add_rms_norm(In in, float* out, int64_t rows, int64_t n) {
  norm(in, out, rows, n, false);
}

}  // namespace pelton::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::bench {
#define GROUP(name)                                                              \
  void name(const float* const* in, float* out, int64_t rows, int64_t columns) { \
    static const auto f = PELTON_SIMD_PICK(device::detect_cpu().isa, name);      \
    f(in, out, rows, columns);                                                   \
  }
GROUP(add_relu)
GROUP(bias_gelu)
GROUP(silu_mul)
GROUP(scale_shift)
GROUP(hard_swish_add)
GROUP(sub_square)
GROUP(lerp)
GROUP(gate_rows)
GROUP(tanh_scale)
GROUP(softmax)
GROUP(add_layer_norm)
GROUP(add_rms_norm)
}  // namespace pelton::bench
#endif
