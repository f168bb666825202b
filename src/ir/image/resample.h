// SPDX-License-Identifier: Apache-2.0
// The separable resample of the default mode: float sums, vertical then horizontal, no rounding in between.
// Works on tiles of 16 output rows, transposed so that every inner loop runs over the 16 rows.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/image/filter_table.h"

namespace pelton::ir {

inline constexpr int kTileRows = 16;

// u8 samples [height, width, channels] of which pixel (0, 0) is source pixel (x0, y0).
struct PlaneView {
  const uint8_t* data = nullptr;
  ptrdiff_t pitch = 0;  // bytes from row to row
  int width = 0, height = 0, channels = 1;
  int x0 = 0, y0 = 0;
};

class PlaneResampler {
 public:
  // The tables must stay alive and within the view. `scratch` holds scratch_floats() of x and the view's
  // channels, best at a multiple of 64 bytes; without it the object has its own.
  PlaneResampler(PlaneView view, const FilterTable& x, const FilterTable& y, float* scratch = nullptr);
  PlaneResampler(PlaneResampler&&) = default;
  static size_t scratch_floats(const FilterTable& x, int channels);
  // Output rows y .. y + rows - 1 (rows <= 16) as out[channel][x][16] in 0..255, not clamped.
  void tile(int y, int rows, float* out);
  size_t tile_floats() const { return static_cast<size_t>(view_.channels) * x_.first.size() * kTileRows; }

 private:
  PlaneView view_;
  const FilterTable& x_;
  const FilterTable& y_;
  int begin_ = 0, columns_ = 0;  // source columns in use
  int most_ = 0;                 // taps of a result along x
  float *x_weights_ = nullptr, *row_ = nullptr, *block_ = nullptr;
  std::vector<float> own_;
};

}  // namespace pelton::ir
