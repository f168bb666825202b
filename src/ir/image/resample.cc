// SPDX-License-Identifier: Apache-2.0
#include "ir/image/resample.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ir/image/simd.h"

namespace pelton::ir {
namespace {

// out[i] = sum over taps of w[k] * src[k * pitch + i]
PELTON_CLONES void vertical(const uint8_t* src, ptrdiff_t pitch, const double* w, int taps,
                            float* __restrict out, int n) {
  int k = 0;
  if (taps % 2) {
    const float a = static_cast<float>(w[0]);
    for (int i = 0; i < n; ++i) out[i] = a * static_cast<float>(src[i]);
    k = 1;
  } else {
    const float a = static_cast<float>(w[0]), b = static_cast<float>(w[1]);
    const uint8_t* next = src + pitch;
    for (int i = 0; i < n; ++i) out[i] = a * static_cast<float>(src[i]) + b * static_cast<float>(next[i]);
    k = 2;
  }
  for (; k < taps; k += 2) {
    const float a = static_cast<float>(w[k]), b = static_cast<float>(w[k + 1]);
    const uint8_t *first = src + k * pitch, *second = first + pitch;
    for (int i = 0; i < n; ++i)
      out[i] = out[i] + (a * static_cast<float>(first[i]) + b * static_cast<float>(second[i]));
  }
}

// block[i][row] = rows[row][i] for 16 rows.
PELTON_CLONES void transpose(const float* rows, int n, float* __restrict block) {
  for (int i = 0; i < n; ++i)
    for (int r = 0; r < kTileRows; ++r) block[i * kTileRows + r] = rows[r * n + i];
}

// Every result takes `most` taps, those behind its own with weight 0: a loop of one length is foreseen by the
// CPU. Behind the block there are zeros for them to read.
PELTON_CLONES void horizontal(const float* block, const int* first, int most, const float* weights, int taps,
                              int begin, int channels, int n, float* __restrict out) {
  for (int c = 0; c < channels; ++c)
    for (int x = 0; x < n; ++x) {
      float sum[kTileRows] = {};
      const float* in = block + (static_cast<ptrdiff_t>(first[x] - begin) * channels + c) * kTileRows;
      const float* w = weights + static_cast<ptrdiff_t>(x) * taps;
      for (int k = 0; k < most; ++k, in += channels * kTileRows)
        for (int r = 0; r < kTileRows; ++r) sum[r] += w[k] * in[r];
      std::memcpy(out, sum, sizeof sum);
      out += kTileRows;
    }
}

}  // namespace

size_t PlaneResampler::scratch_floats(const FilterTable& x, int channels) {
  return x.weights.size() + static_cast<size_t>(x.taps * channels * kTileRows) +
         2 * static_cast<size_t>(x.high() - x.low()) * static_cast<size_t>(channels) * kTileRows;
}

PlaneResampler::PlaneResampler(PlaneView view, const FilterTable& x, const FilterTable& y, float* scratch)
    : view_(view), x_(x), y_(y) {
  begin_ = x.low();
  columns_ = x.high() - begin_;
  PELTON_CHECK(begin_ >= view.x0 && begin_ + columns_ <= view.x0 + view.width, "columns ", begin_, "+",
               columns_);
  PELTON_CHECK(y.low() >= view.y0 && y.high() <= view.y0 + view.height, "rows ", y.low(), "-", y.high(),
               " of ", view.y0, "+", view.height);
  if (!scratch) {
    own_.resize(scratch_floats(x, view.channels));
    scratch = own_.data();
  }
  // The blocks first: from an aligned begin, each of their columns is a cache line.
  const ptrdiff_t floats = static_cast<ptrdiff_t>(columns_) * view.channels * kTileRows;
  block_ = scratch;
  row_ = std::fill_n(block_ + floats, ptrdiff_t{x.taps} * view.channels * kTileRows, 0.0f);
  x_weights_ = row_ + floats;
  std::copy(x.weights.begin(), x.weights.end(), x_weights_);
  most_ = x.count.empty() ? 0 : *std::ranges::max_element(x.count);
}

void PlaneResampler::tile(int y, int rows, float* out) {
  const int row = columns_ * view_.channels;
  for (int r = 0; r < rows; ++r) {
    const size_t at = static_cast<size_t>(y + r);
    const uint8_t* src = view_.data + (y_.first[at] - view_.y0) * view_.pitch +
                         static_cast<ptrdiff_t>(begin_ - view_.x0) * view_.channels;
    vertical(src, view_.pitch, y_.weights.data() + at * static_cast<size_t>(y_.taps), y_.count[at],
             row_ + r * row, row);
  }
  transpose(row_, row, block_);
  horizontal(block_, x_.first.data(), most_, x_weights_, x_.taps, begin_, view_.channels,
             static_cast<int>(x_.first.size()), out);
}

}  // namespace pelton::ir
