// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/own/winograd_steps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/own/winograd_steps.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using V = hn::Vec<DF>;

constexpr int kVectors = 2;
// With two vectors of columns these rows fill the registers.
#if HWY_TARGET == HWY_AVX3
constexpr int kRows = 14;
#elif HWY_TARGET == HWY_AVX2
constexpr int kRows = 6;
#else
constexpr int kRows = 4;
#endif

// Rows of G w: w0, (w0 + w1 + w2) / 2, (w0 - w1 + w2) / 2, w2.
template <class T>
HWY_INLINE void spread(T a, T b, T c, T half, T out[4]) {
  const T ends = hn::Mul(half, hn::Add(a, c)), middle = hn::Mul(half, b);
  out[0] = a;
  out[1] = hn::Add(ends, middle);
  out[2] = hn::Sub(ends, middle);
  out[3] = c;
}

void weights(const float* w, int64_t output_stride, int64_t channels, int64_t outputs, float* u,
             int64_t point_stride, int64_t columns) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto half = hn::Set(d, 0.5f);
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t first = 0; first < 16; first += lanes) {
      HWY_ALIGN float taps[9][16] = {};
      for (int64_t o = first; o < first + lanes && o < outputs; ++o)
        for (int64_t t = 0; t < 9; ++t) taps[t][o - first] = w[o * output_stride + c * 9 + t];
      hn::Vec<decltype(d)> rows[4][3], row[4];
      for (int x = 0; x < 3; ++x) {
        spread(hn::Load(d, taps[x]), hn::Load(d, taps[3 + x]), hn::Load(d, taps[6 + x]), half, row);
        for (int y = 0; y < 4; ++y) rows[y][x] = row[y];
      }
      for (int y = 0; y < 4; ++y) {
        spread(rows[y][0], rows[y][1], rows[y][2], half, row);
        for (int x = 0; x < 4; ++x)
          hn::StoreU(row[x], d, u + (y * 4 + x) * point_stride + c * columns + first);
      }
    }
}

// One vector of channels at `c`; `count` of them count if fewer than a vector.
template <bool kWhole>
HWY_INLINE void input_vector(const float* const* pixels, int64_t c, size_t count, float* v,
                             int64_t point_stride) {
  const DF d;
  const auto load = [&](int i) {
    if constexpr (kWhole)
      return hn::LoadU(d, pixels[i] + c);
    else
      return hn::MaskedLoad(hn::FirstN(d, count), d, pixels[i] + c);
  };
  const auto store = [&](V x, int p) {
    if constexpr (kWhole)
      hn::StoreU(x, d, v + p * point_stride + c);
    else
      hn::BlendedStore(x, hn::FirstN(d, count), d, v + p * point_stride + c);
  };
  V t[4][4];
  for (int x = 0; x < 4; ++x) {
    const V a = load(x), b = load(4 + x), e = load(8 + x), f = load(12 + x);
    t[0][x] = hn::Sub(a, e);
    t[1][x] = hn::Add(b, e);
    t[2][x] = hn::Sub(e, b);
    t[3][x] = hn::Sub(b, f);
  }
  for (int y = 0; y < 4; ++y) {
    store(hn::Sub(t[y][0], t[y][2]), y * 4);
    store(hn::Add(t[y][1], t[y][2]), y * 4 + 1);
    store(hn::Sub(t[y][2], t[y][1]), y * 4 + 2);
    store(hn::Sub(t[y][1], t[y][3]), y * 4 + 3);
  }
}
void input(const float* const* pixels, int64_t channels, float* v, int64_t point_stride) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) input_vector<true>(pixels, c, 0, v, point_stride);
  if (c < channels) input_vector<false>(pixels, c, static_cast<size_t>(channels - c), v, point_stride);
}

template <int R>
void product_rows(int64_t k, const float* a, int64_t lda, const float* panel, float* out) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d)), columns = kVectors * lanes;
  V sum[R][kVectors];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  for (int64_t i = 0; i < k; ++i) {
    V b[kVectors];
    for (int v = 0; v < kVectors; ++v) b[v] = hn::LoadU(d, panel + i * columns + v * lanes);
    for (int r = 0; r < R; ++r) {
      const V x = hn::Set(d, a[r * lda + i]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x, b[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, out + r * columns + v * lanes);
}
template <int R>
void product_of(int64_t rows, int64_t k, const float* a, int64_t lda, const float* panel, float* out) {
  if constexpr (R > 0) {
    if (rows == R)
      product_rows<R>(k, a, lda, panel, out);
    else
      product_of<R - 1>(rows, k, a, lda, panel, out);
  }
}
void product(int64_t rows, int64_t k, const float* a, int64_t lda, const float* panel, float* out) {
  const auto columns = kVectors * static_cast<int64_t>(hn::Lanes(DF()));
  // Parts of about equal height, since low ones leave registers idle.
  for (int64_t parts = (rows + kRows - 1) / kRows; parts > 0; --parts) {
    const int64_t now = (rows + parts - 1) / parts;
    product_of<kRows>(now, k, a, lda, panel, out);
    a += now * lda;
    out += now * columns;
    rows -= now;
  }
}

// Returns zeros, with a NaN where a result is not finite.
template <bool kWhole>
HWY_INLINE V output_vector(const float* m, int64_t point_stride, int64_t o, size_t count, const float* bias,
                           V low, float* const* pixels) {
  const DF d;
  V t[2][4];
  for (int x = 0; x < 4; ++x) {
    const auto at = [&](int y) { return hn::LoadU(d, m + (y * 4 + x) * point_stride + o); };
    const V inner = hn::Add(at(1), at(2)), outer = hn::Sub(at(1), at(2));
    t[0][x] = hn::Add(at(0), inner);
    t[1][x] = hn::Sub(outer, at(3));
  }
  V add = hn::Zero(d);
  if (bias) {
    if constexpr (kWhole)
      add = hn::LoadU(d, bias + o);
    else
      add = hn::MaskedLoad(hn::FirstN(d, count), d, bias + o);
  }
  V finite = hn::Zero(d);
  for (int y = 0; y < 2; ++y) {
    const V left = hn::Add(hn::Add(t[y][0], t[y][1]), hn::Add(t[y][2], add));
    const V right = hn::Add(hn::Sub(t[y][1], t[y][2]), hn::Sub(add, t[y][3]));
    finite = hn::MulAdd(left, hn::Zero(d), hn::MulAdd(right, hn::Zero(d), finite));
    for (int x = 0; x < 2; ++x) {
      float* to = pixels[y * 2 + x];
      if (!to) continue;
      // In this order a NaN stays one.
      const V result = hn::Max(low, x ? right : left);
      if constexpr (kWhole)
        hn::StoreU(result, d, to + o);
      else
        hn::BlendedStore(result, hn::FirstN(d, count), d, to + o);
    }
  }
  return finite;
}
bool output(const float* m, int64_t point_stride, int64_t outputs, const float* bias, float low,
            float* const* pixels) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V least = hn::Set(d, low);
  V finite = hn::Zero(d);
  int64_t o = 0;
  for (; o + lanes <= outputs; o += lanes)
    finite = hn::Add(finite, output_vector<true>(m, point_stride, o, 0, bias, least, pixels));
  if (o < outputs)
    finite = hn::Add(finite, output_vector<false>(m, point_stride, o, static_cast<size_t>(outputs - o), bias,
                                                  least, pixels));
  return hn::AllTrue(d, hn::Eq(finite, hn::Zero(d)));
}

WinogradSteps steps() {
  return {kVectors * static_cast<int64_t>(hn::Lanes(DF())), kRows, weights, input, product, output};
}

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {

WinogradSteps winograd_steps(device::CpuIsa isa) {
  return (*PELTON_SIMD_PICK(isa, steps))();
}

}  // namespace pelton::backend::cpu
#endif
