// SPDX-License-Identifier: Apache-2.0
// Integer resample with the arithmetic of PyTorch's uint8 interpolate, which torchvision's resize on uint8
// tensors calls: 16-bit weights at the largest precision that holds the largest weight, horizontal pass
// first, 8 bits between the passes. Bit-exact with that library for linear and antialiased cubic.
#include <algorithm>
#include <cmath>

#include "data/image/resample_exact.h"

namespace pelton::data {
namespace {

struct Taps16 {
  FilterTable table;
  std::vector<int16_t> weights;
  int precision = 0;
};

Taps16 taps16(const Axis& axis, Filter filter, bool antialias) {
  Taps16 t;
  t.table = filter_table(axis, filter, antialias);
  const double largest = t.table.weights.empty() ? 1 : *std::ranges::max_element(t.table.weights);
  while (t.precision < 22 && static_cast<int>(0.5 + largest * (1 << (t.precision + 1))) < (1 << 15))
    ++t.precision;
  t.weights.resize(t.table.weights.size());
  for (size_t i = 0; i < t.weights.size(); ++i) {
    const double v = t.table.weights[i] * (1 << t.precision);
    t.weights[i] = static_cast<int16_t>(v < 0 ? v - 0.5 : v + 0.5);
  }
  return t;
}

// One output sample from samples `step` bytes apart.
uint8_t weigh(const uint8_t* in, ptrdiff_t step, const Taps16& t, size_t at) {
  const int16_t* w = t.weights.data() + at * static_cast<size_t>(t.table.taps);
  int32_t sum = 1 << (t.precision - 1);
  for (int k = 0; k < t.table.count[at]; ++k) sum += w[k] * in[k * step];
  return static_cast<uint8_t>(std::clamp(sum >> t.precision, 0, 255));
}

// Nearest as in torch: floor(i * scale) with a float scale.
Tensor nearest_torch(PlaneView v, const Axis& ax, const Axis& ay) {
  Tensor out(DType::u8, {ay.n, ax.n, v.channels});
  uint8_t* dst = out.as_mutable<uint8_t>();
  auto index = [](const Axis& a, int i) {
    const int size = a.high - a.low;
    const float scale = static_cast<float>(size) / static_cast<float>(a.n);
    return a.low + std::min(static_cast<int>(std::floor(static_cast<float>(i) * scale)), size - 1);
  };
  for (int y = 0; y < ay.n; ++y)
    for (int x = 0; x < ax.n; ++x, dst += v.channels)
      std::copy_n(v.data + (index(ay, y) - v.y0) * v.pitch + (index(ax, x) - v.x0) * v.channels, v.channels,
                  dst);
  return out;
}

}  // namespace

Tensor resample_torchvision(PlaneView v, const Axis& ax, const Axis& ay, Filter filter, bool antialias) {
  if (filter == Filter::nearest) return nearest_torch(v, ax, ay);
  if (filter != Filter::linear && !(filter == Filter::cubic && antialias))
    fail(ErrorCode::usage, "match = \"torchvision\" has nearest, linear, and cubic with antialiasing",
         "resize", "choose one of them, or match = \"pillow\"");
  Taps16 tx = taps16(ax, filter, antialias), ty = taps16(ay, filter, antialias);
  const int low = ty.table.low(), rows = ty.table.high() - low, c = v.channels;
  const ptrdiff_t width = ptrdiff_t{ax.n} * c;
  std::vector<uint8_t> middle(static_cast<size_t>(rows * width));
  uint8_t* m = middle.data();
  for (int y = 0; y < rows; ++y) {
    const uint8_t* src = v.data + (y + low - v.y0) * v.pitch;
    for (size_t x = 0; x < static_cast<size_t>(ax.n); ++x)
      for (int k = 0; k < c; ++k) *m++ = weigh(src + (tx.table.first[x] - v.x0) * c + k, c, tx, x);
  }
  Tensor out(DType::u8, {ay.n, ax.n, c});
  uint8_t* dst = out.as_mutable<uint8_t>();
  for (size_t y = 0; y < static_cast<size_t>(ay.n); ++y)
    for (ptrdiff_t i = 0; i < width; ++i)
      *dst++ = weigh(middle.data() + (ty.table.first[y] - low) * width + i, width, ty, y);
  return out;
}

}  // namespace pelton::data
