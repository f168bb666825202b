// SPDX-License-Identifier: Apache-2.0
#include "data/image/gather.h"

#include <algorithm>
#include <cmath>

#include "ir/image/filter_table.h"

namespace pelton::data {
namespace {

template <int Taps>
void blend(const uint8_t* src, int64_t width, int64_t height, int64_t channels, double x, double y,
           const float* wx, const float* wy, uint8_t* out) {
  constexpr int before = Taps / 2 - 1;
  const int64_t x0 = static_cast<int64_t>(std::floor(x)) - before,
                y0 = static_cast<int64_t>(std::floor(y)) - before;
  int64_t column[Taps];
  for (int k = 0; k < Taps; ++k) column[k] = std::clamp<int64_t>(x0 + k, 0, width - 1) * channels;
  float sum[4] = {};
  for (int j = 0; j < Taps; ++j) {
    const uint8_t* row = src + std::clamp<int64_t>(y0 + j, 0, height - 1) * width * channels;
    for (int64_t c = 0; c < channels; ++c) {
      float line = 0;
      for (int k = 0; k < Taps; ++k) line += wx[k] * static_cast<float>(row[column[k] + c]);
      sum[c] += wy[j] * line;
    }
  }
  for (int64_t c = 0; c < channels; ++c)
    out[c] = static_cast<uint8_t>(std::clamp(sum[c], 0.0f, 255.0f) + 0.5f);
}

}  // namespace

Tensor gather_pixels(const Tensor& pixels, const Warp& warp, std::array<uint8_t, 3> fill) {
  const int64_t h = pixels.dims()[0], w = pixels.dims()[1], c = pixels.dims()[2];
  Tensor out(DType::u8, {warp.height, warp.width, c});
  const uint8_t* src = pixels.as<uint8_t>();
  uint8_t* dst = out.as_mutable<uint8_t>();
  for (int j = 0; j < warp.height; ++j)
    for (int i = 0; i < warp.width; ++i, dst += c) {
      double x = i + 0.5, y = j + 0.5;
      apply(warp.matrix, x, y);
      if (!(x >= 0 && x < static_cast<double>(w) && y >= 0 && y < static_cast<double>(h))) {
        for (int64_t k = 0; k < c; ++k) dst[k] = fill[static_cast<size_t>(k)];
        continue;
      }
      if (warp.filter == Filter::nearest) {
        const uint8_t* p = src + (static_cast<int64_t>(y) * w + static_cast<int64_t>(x)) * c;
        std::copy_n(p, c, dst);
        continue;
      }
      x -= 0.5;
      y -= 0.5;
      const double fx = x - std::floor(x), fy = y - std::floor(y);
      float wx[4], wy[4];
      if (warp.filter == Filter::cubic) {
        for (int k = 0; k < 4; ++k) {
          wx[k] = static_cast<float>(ir::filter_value(Filter::cubic, fx + 1 - k));
          wy[k] = static_cast<float>(ir::filter_value(Filter::cubic, fy + 1 - k));
        }
        blend<4>(src, w, h, c, x, y, wx, wy, dst);
      } else {
        wx[1] = static_cast<float>(fx), wx[0] = 1 - wx[1];
        wy[1] = static_cast<float>(fy), wy[0] = 1 - wy[1];
        blend<2>(src, w, h, c, x, y, wx, wy, dst);
      }
    }
  return out;
}

}  // namespace pelton::data
