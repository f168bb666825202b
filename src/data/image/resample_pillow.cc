// SPDX-License-Identifier: Apache-2.0
// Integer resample with the arithmetic of Pillow's Image.resize: weights in 22-bit fixed point, a horizontal
// pass rounded to 8 bits, then a vertical one. Bit-exact with that library.
#include "data/image/resample_exact.h"

#include <algorithm>

#include "data/image/simd.h"

namespace pelton::data {
namespace {

constexpr int kBits = 32 - 8 - 2;

std::vector<int32_t> fixed(const FilterTable& t) {
  std::vector<int32_t> out(t.weights.size());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<int32_t>((t.weights[i] < 0 ? -0.5 : 0.5) + t.weights[i] * (1 << kBits));
  return out;
}

uint8_t clip(int32_t v) {
  v >>= kBits;
  return static_cast<uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v);
}

template <int C>
void horizontal_row(const uint8_t* src, uint8_t* dst, const FilterTable& t, const int32_t* weights, int x0) {
  for (size_t x = 0; x < t.first.size(); ++x) {
    const uint8_t* in = src + (t.first[x] - x0) * C;
    const int32_t* w = weights + x * static_cast<size_t>(t.taps);
    int32_t sum[C];
    for (int c = 0; c < C; ++c) sum[c] = 1 << (kBits - 1);
    for (int k = 0; k < t.count[x]; ++k)
      for (int c = 0; c < C; ++c) sum[c] += in[k * C + c] * w[k];
    for (int c = 0; c < C; ++c) *dst++ = clip(sum[c]);
  }
}

PELTON_CLONES void vertical_row(const uint8_t* src, ptrdiff_t pitch, const int32_t* w, int taps,
                                uint8_t* __restrict dst, int32_t* __restrict sum, int n) {
  for (int i = 0; i < n; ++i) sum[i] = 1 << (kBits - 1);
  for (int k = 0; k < taps; ++k)
    for (int i = 0; i < n; ++i) sum[i] += src[k * pitch + i] * w[k];
  for (int i = 0; i < n; ++i) {
    int32_t v = sum[i] >> kBits;
    dst[i] = static_cast<uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v);
  }
}

// [rows, view.width * C] -> [rows, n * C], rows low .. low + rows - 1 of the view.
std::vector<uint8_t> horizontal_pass(const PlaneView& v, const FilterTable& t, int low, int rows) {
  const std::vector<int32_t> weights = fixed(t);
  const size_t width = t.first.size() * static_cast<size_t>(v.channels);
  std::vector<uint8_t> out(static_cast<size_t>(rows) * width);
  for (int y = 0; y < rows; ++y) {
    const uint8_t* src = v.data + (y + low - v.y0) * v.pitch;
    uint8_t* dst = out.data() + static_cast<size_t>(y) * width;
    if (v.channels == 1)
      horizontal_row<1>(src, dst, t, weights.data(), v.x0);
    else if (v.channels == 3)
      horizontal_row<3>(src, dst, t, weights.data(), v.x0);
    else
      horizontal_row<4>(src, dst, t, weights.data(), v.x0);
  }
  return out;
}

void vertical_pass(const PlaneView& v, const FilterTable& t, uint8_t* dst) {
  const std::vector<int32_t> weights = fixed(t);
  const int width = v.width * v.channels;
  std::vector<int32_t> sum(static_cast<size_t>(width));
  for (size_t y = 0; y < t.first.size(); ++y, dst += width)
    vertical_row(v.data + (t.first[y] - v.y0) * v.pitch, v.pitch,
                 weights.data() + y * static_cast<size_t>(t.taps), t.count[y], dst, sum.data(), width);
}

// Pillow steps through the source by adding the scale again and again; the sum's rounding is part of the
// result.
std::vector<int> nearest_indices(const Axis& a) {
  std::vector<int> out(static_cast<size_t>(a.n));
  const int size = a.high - a.low;
  const double scale = static_cast<double>(size) / a.n;
  double at = scale * 0.5;
  for (int& i : out) {
    i = a.low + std::clamp(static_cast<int>(at), 0, size - 1);
    at += scale;
  }
  return out;
}

Tensor nearest_pillow(const PlaneView& v, const Axis& ax, const Axis& ay) {
  Tensor out(DType::u8, {ay.n, ax.n, v.channels});
  uint8_t* dst = out.as_mutable<uint8_t>();
  const std::vector<int> xs = nearest_indices(ax);
  for (int y : nearest_indices(ay))
    for (int x : xs)
      dst = std::copy_n(v.data + (y - v.y0) * v.pitch + (x - v.x0) * v.channels, v.channels, dst);
  return out;
}

}  // namespace

Tensor resample_pillow(PlaneView v, const Axis& ax, const Axis& ay, Filter filter) {
  if (filter == Filter::nearest) return nearest_pillow(v, ax, ay);
  const FilterTable tx = filter_table(ax, filter, true), ty = filter_table(ay, filter, true);
  Tensor out(DType::u8, {ay.n, ax.n, v.channels});
  // Since release 13 Pillow starts with the rows when they shrink by more than twice as many pixels as the
  // columns do. Both passes round to 8 bits, so the order shows.
  const int shrink_x = ax.high - ax.low - ax.n, shrink_y = ay.high - ay.low - ay.n;
  if (shrink_y > 0 && shrink_y > 2 * shrink_x) {
    const int low = tx.low();
    PlaneView columns = v;
    columns.data += (low - v.x0) * v.channels;
    columns.x0 = low;
    columns.width = tx.high() - low;
    std::vector<uint8_t> middle(static_cast<size_t>(ay.n) * static_cast<size_t>(columns.width * v.channels));
    vertical_pass(columns, ty, middle.data());
    PlaneView rows{middle.data(),
                   static_cast<ptrdiff_t>(columns.width) * v.channels,
                   columns.width,
                   ay.n,
                   v.channels,
                   low,
                   0};
    std::vector<uint8_t> done = horizontal_pass(rows, tx, 0, ay.n);
    std::copy(done.begin(), done.end(), out.as_mutable<uint8_t>());
  } else {
    const int low = ty.low(), rows = ty.high() - low;
    std::vector<uint8_t> middle = horizontal_pass(v, tx, low, rows);
    vertical_pass({middle.data(), static_cast<ptrdiff_t>(ax.n) * v.channels, ax.n, rows, v.channels, 0, low},
                  ty, out.as_mutable<uint8_t>());
  }
  return out;
}

}  // namespace pelton::data
