// SPDX-License-Identifier: Apache-2.0
// Integer resample with the arithmetic of PyTorch's uint8 interpolate, which torchvision's resize on uint8
// tensors calls: 16-bit weights at the largest precision that holds the largest weight, horizontal pass
// first, 8 bits between the passes. Bit-exact with that library for linear and antialiased cubic.
#include <algorithm>
#include <cmath>

#include "ir/image/exact.h"

namespace pelton::ir {
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

class Resize final : public ExactResize {
 public:
  Resize(const Axis& x, const Axis& y, Filter filter, bool antialias, int channels)
      : x_(taps16(x, filter, antialias)),
        y_(taps16(y, filter, antialias)),
        channels_(channels),
        low_(y_.table.low()),
        rows_(y_.table.high() - low_),
        width_(ptrdiff_t{x.n} * channels) {}
  int64_t scratch_bytes() const override { return rows_ * width_; }

  void run(const PlaneView& v, uint8_t* out, void* scratch) const override {
    auto* const middle = static_cast<uint8_t*>(scratch);
    uint8_t* m = middle;
    for (int y = 0; y < rows_; ++y) {
      const uint8_t* src = v.data + (y + low_ - v.y0) * v.pitch;
      for (size_t x = 0; x < x_.table.first.size(); ++x)
        for (int k = 0; k < channels_; ++k)
          *m++ = weigh(src + (x_.table.first[x] - v.x0) * channels_ + k, channels_, x_, x);
    }
    for (size_t y = 0; y < y_.table.first.size(); ++y)
      for (ptrdiff_t i = 0; i < width_; ++i)
        *out++ = weigh(middle + (y_.table.first[y] - low_) * width_ + i, width_, y_, y);
  }

 private:
  Taps16 x_, y_;
  int channels_, low_, rows_;
  ptrdiff_t width_;
};

// Nearest as in torch: floor(i * scale) with a float scale.
std::vector<int> nearest_indices(const Axis& a) {
  const int size = a.high - a.low;
  const float scale = static_cast<float>(size) / static_cast<float>(a.n);
  std::vector<int> out(static_cast<size_t>(a.n));
  for (int i = 0; i < a.n; ++i)
    out[static_cast<size_t>(i)] =
        a.low + std::min(static_cast<int>(std::floor(static_cast<float>(i) * scale)), size - 1);
  return out;
}

}  // namespace

std::unique_ptr<ExactResize> torchvision_resize(const Axis& x, const Axis& y, Filter filter, bool antialias,
                                                int channels) {
  if (filter == Filter::nearest) return pick_resize(nearest_indices(x), nearest_indices(y));
  return std::make_unique<Resize>(x, y, filter, antialias, channels);
}

}  // namespace pelton::ir
