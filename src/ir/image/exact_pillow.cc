// SPDX-License-Identifier: Apache-2.0
// Integer resample with the arithmetic of Pillow's Image.resize: weights in 22-bit fixed point, a horizontal
// pass rounded to 8 bits, then a vertical one. Bit-exact with that library.
#include <algorithm>

#include "ir/image/exact.h"
#include "ir/image/simd.h"

namespace pelton::ir {
namespace {

constexpr int kBits = 32 - 8 - 2;

struct Table {
  FilterTable taps;
  std::vector<int32_t> weights;

  Table(const Axis& axis, Filter filter)
      : taps(filter_table(axis, filter, true)), weights(taps.weights.size()) {
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = static_cast<int32_t>((taps.weights[i] < 0 ? -0.5 : 0.5) + taps.weights[i] * (1 << kBits));
  }
};

uint8_t clip(int32_t v) {
  v >>= kBits;
  return static_cast<uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v);
}

template <int C>
void horizontal_row(const uint8_t* src, uint8_t* dst, const Table& table, int x0) {
  const FilterTable& t = table.taps;
  for (size_t x = 0; x < t.first.size(); ++x) {
    const uint8_t* in = src + (t.first[x] - x0) * C;
    const int32_t* w = table.weights.data() + x * static_cast<size_t>(t.taps);
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

class Resize final : public ExactResize {
 public:
  Resize(const Axis& x, const Axis& y, Filter filter, int channels)
      : x_(x, filter), y_(y, filter), channels_(channels) {
    // Since release 13 Pillow starts with the rows when they shrink by more than twice as many pixels as the
    // columns do. Both passes round to 8 bits, so the order shows.
    const int shrink_x = x.high - x.low - x.n, shrink_y = y.high - y.low - y.n;
    rows_first_ = shrink_y > 0 && shrink_y > 2 * shrink_x;
    low_ = rows_first_ ? x_.taps.low() : y_.taps.low();
    span_ = (rows_first_ ? x_.taps.high() : y_.taps.high()) - low_;
    widest_ = std::max(rows_first_ ? span_ : x.n, 1) * channels;
    middle_ = int64_t{rows_first_ ? y.n : span_} * widest_;
  }
  int64_t scratch_bytes() const override { return widest_ * 4 + middle_; }

  void run(const PlaneView& v, uint8_t* out, void* scratch) const override {
    int32_t* sum = static_cast<int32_t*>(scratch);
    uint8_t* middle = reinterpret_cast<uint8_t*>(sum + widest_);
    const int height = static_cast<int>(y_.taps.first.size());
    if (rows_first_) {
      PlaneView columns = v;
      columns.data += (low_ - v.x0) * channels_;
      columns.x0 = low_;
      columns.width = span_;
      vertical(columns, middle, sum);
      horizontal({middle, ptrdiff_t{span_} * channels_, span_, height, channels_, low_, 0}, 0, height, out);
    } else {
      const int width = static_cast<int>(x_.taps.first.size());
      horizontal(v, low_, span_, middle);
      vertical({middle, ptrdiff_t{width} * channels_, width, span_, channels_, 0, low_}, out, sum);
    }
  }

 private:
  // Rows low .. low + rows - 1 of the view: [rows, view.width * C] -> [rows, n * C].
  void horizontal(const PlaneView& v, int low, int rows, uint8_t* out) const {
    const size_t width = x_.taps.first.size() * static_cast<size_t>(channels_);
    for (int y = 0; y < rows; ++y, out += width) {
      const uint8_t* src = v.data + (y + low - v.y0) * v.pitch;
      if (channels_ == 1)
        horizontal_row<1>(src, out, x_, v.x0);
      else if (channels_ == 3)
        horizontal_row<3>(src, out, x_, v.x0);
      else
        horizontal_row<4>(src, out, x_, v.x0);
    }
  }
  void vertical(const PlaneView& v, uint8_t* dst, int32_t* sum) const {
    const FilterTable& t = y_.taps;
    const int width = v.width * channels_;
    for (size_t y = 0; y < t.first.size(); ++y, dst += width)
      vertical_row(v.data + (t.first[y] - v.y0) * v.pitch, v.pitch,
                   y_.weights.data() + y * static_cast<size_t>(t.taps), t.count[y], dst, sum, width);
  }

  Table x_, y_;
  int channels_, low_ = 0, span_ = 0, widest_ = 0;
  int64_t middle_ = 0;
  bool rows_first_ = false;
};

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

}  // namespace

std::unique_ptr<ExactResize> pillow_resize(const Axis& x, const Axis& y, Filter filter, int channels) {
  if (filter == Filter::nearest) return pick_resize(nearest_indices(x), nearest_indices(y));
  return std::make_unique<Resize>(x, y, filter, channels);
}

}  // namespace pelton::ir
