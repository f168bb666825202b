// SPDX-License-Identifier: Apache-2.0
// Resizes with the arithmetic of OpenCV's resize on 8-bit pictures. nearest and linear are integer and
// bit-exact; box stands for INTER_AREA and cubic for INTER_CUBIC, both within one level (sums in float).
// OpenCV has no antialiasing beyond INTER_AREA.
#include <algorithm>
#include <cmath>

#include "data/image/resample_exact.h"

namespace pelton::data {
namespace {

constexpr int kOne = 2048;  // 11-bit weights

struct Tap2 {
  int at = 0, next = 0;
  int w0 = kOne, w1 = 0;
};

// Beyond the border a column keeps one weight; a row keeps both and reads the edge row twice, which rounds
// differently.
std::vector<Tap2> linear_taps(const Axis& a, bool column) {
  const int size = a.high - a.low;
  const double scale = 1.0 / (static_cast<double>(a.n) / size);
  std::vector<Tap2> taps(static_cast<size_t>(a.n));
  for (int i = 0; i < a.n; ++i) {
    float f = static_cast<float>((i + 0.5) * scale - 0.5);
    int s = static_cast<int>(std::floor(f));
    f -= static_cast<float>(s);
    if (column && s < 0) f = 0, s = 0;
    if (column && s >= size - 1) f = 0, s = size - 1;
    Tap2& t = taps[static_cast<size_t>(i)];
    t.at = a.low + std::clamp(s, 0, size - 1);
    t.next = a.low + std::clamp(s + 1, 0, size - 1);
    t.w0 = static_cast<int>(std::lrint((1.f - f) * kOne));
    t.w1 = static_cast<int>(std::lrint(f * kOne));
  }
  return taps;
}

Tensor linear(PlaneView v, const Axis& ax, const Axis& ay) {
  std::vector<Tap2> tx = linear_taps(ax, true), ty = linear_taps(ay, false);
  const int c = v.channels, width = ax.n * c;
  Tensor out(DType::u8, {ay.n, ax.n, c});
  uint8_t* dst = out.as_mutable<uint8_t>();
  std::vector<int> upper(static_cast<size_t>(width)), lower(static_cast<size_t>(width));
  auto horizontal = [&](int y, std::vector<int>& row) {
    const uint8_t* src = v.data + (y - v.y0) * v.pitch;
    int* o = row.data();
    for (const Tap2& t : tx)
      for (int k = 0; k < c; ++k)
        *o++ = src[(t.at - v.x0) * c + k] * t.w0 + src[(t.next - v.x0) * c + k] * t.w1;
  };
  for (const Tap2& t : ty) {
    horizontal(t.at, upper);
    horizontal(t.next, lower);
    for (size_t i = 0; i < static_cast<size_t>(width); ++i)
      *dst++ = static_cast<uint8_t>(
          (((t.w0 * (upper[i] >> 4)) >> 16) + ((t.w1 * (lower[i] >> 4)) >> 16) + 2) >> 2);
  }
  return out;
}

Tensor nearest(PlaneView v, const Axis& ax, const Axis& ay) {
  Tensor out(DType::u8, {ay.n, ax.n, v.channels});
  uint8_t* dst = out.as_mutable<uint8_t>();
  auto index = [](const Axis& a, int i) {
    const int size = a.high - a.low;
    const double scale = 1.0 / (static_cast<double>(a.n) / size);
    return a.low + std::min(static_cast<int>(std::floor(i * scale)), size - 1);
  };
  for (int y = 0; y < ay.n; ++y)
    for (int x = 0; x < ax.n; ++x, dst += v.channels)
      std::copy_n(v.data + (index(ay, y) - v.y0) * v.pitch + (index(ax, x) - v.x0) * v.channels, v.channels,
                  dst);
  return out;
}

// Weights of one axis in float: area (shrinking only) or cubic with a = -0.75 and repeated edges.
struct Taps {
  std::vector<std::vector<std::pair<int, float>>> of;
};

Taps area_taps(const Axis& a) {
  const int size = a.high - a.low;
  const double scale = 1.0 / (static_cast<double>(a.n) / size);
  Taps t;
  t.of.resize(static_cast<size_t>(a.n));
  for (int i = 0; i < a.n; ++i) {
    auto& taps = t.of[static_cast<size_t>(i)];
    const double begin = i * scale, end = begin + scale, cell = std::min(scale, size - begin);
    int first = static_cast<int>(std::ceil(begin)),
        last = std::min(static_cast<int>(std::floor(end)), size - 1);
    first = std::min(first, last);
    if (first - begin > 1e-3)
      taps.emplace_back(a.low + first - 1, static_cast<float>((first - begin) / cell));
    for (int k = first; k < last; ++k) taps.emplace_back(a.low + k, static_cast<float>(1.0 / cell));
    if (end - last > 1e-3)
      taps.emplace_back(a.low + last, static_cast<float>(std::min(std::min(end - last, 1.0), cell) / cell));
  }
  return t;
}

Taps cubic_taps(const Axis& a) {
  const int size = a.high - a.low;
  const double scale = 1.0 / (static_cast<double>(a.n) / size);
  constexpr float A = -0.75f;
  Taps t;
  t.of.resize(static_cast<size_t>(a.n));
  for (int i = 0; i < a.n; ++i) {
    float x = static_cast<float>((i + 0.5) * scale - 0.5);
    const int s = static_cast<int>(std::floor(x));
    x -= static_cast<float>(s);
    float w[4];
    w[0] = ((A * (x + 1) - 5 * A) * (x + 1) + 8 * A) * (x + 1) - 4 * A;
    w[1] = ((A + 2) * x - (A + 3)) * x * x + 1;
    w[2] = ((A + 2) * (1 - x) - (A + 3)) * (1 - x) * (1 - x) + 1;
    w[3] = 1.f - w[0] - w[1] - w[2];
    for (int k = 0; k < 4; ++k) {
      const float fixed = static_cast<float>(std::lrint(w[k] * kOne)) / kOne;
      t.of[static_cast<size_t>(i)].emplace_back(a.low + std::clamp(s - 1 + k, 0, size - 1), fixed);
    }
  }
  return t;
}

Tensor separable(PlaneView v, const Taps& tx, const Taps& ty) {
  const int c = v.channels;
  const size_t width = tx.of.size() * static_cast<size_t>(c);
  Tensor out(DType::u8, {static_cast<int64_t>(ty.of.size()), static_cast<int64_t>(tx.of.size()), c});
  uint8_t* dst = out.as_mutable<uint8_t>();
  std::vector<float> sum(width);
  for (const auto& rows : ty.of) {
    std::fill(sum.begin(), sum.end(), 0.f);
    for (auto [y, wy] : rows) {
      const uint8_t* src = v.data + (y - v.y0) * v.pitch;
      float* o = sum.data();
      for (const auto& columns : tx.of)
        for (int k = 0; k < c; ++k) {
          float line = 0;
          for (auto [x, wx] : columns) line += static_cast<float>(src[(x - v.x0) * c + k]) * wx;
          *o++ += wy * line;
        }
    }
    for (float s : sum) *dst++ = static_cast<uint8_t>(std::clamp<long>(std::lrint(s), 0, 255));
  }
  return out;
}

}  // namespace

Tensor resample_opencv(PlaneView v, const Axis& x, const Axis& y, Filter filter, bool antialias) {
  if (filter == Filter::nearest) return nearest(v, x, y);
  if (antialias && filter != Filter::box)
    fail(ErrorCode::usage, "match = \"opencv\" antialiases with filter = \"box\" (INTER_AREA) only", "resize",
         "set antialias = false or filter = \"box\"");
  const int w = x.high - x.low, h = y.high - y.low;
  if (filter == Filter::linear) {
    // OpenCV averages 2x2 blocks when linear halves both sides exactly.
    if (w == 2 * x.n && h == 2 * y.n) return separable(v, area_taps(x), area_taps(y));
    return linear(v, x, y);
  }
  if (filter == Filter::box) {
    if (w >= x.n && h >= y.n) return separable(v, area_taps(x), area_taps(y));
    fail(ErrorCode::usage,
         cat("match = \"opencv\" with filter = \"box\" only shrinks, not ", w, "x", h, " to ", x.n, "x", y.n),
         "resize", "use filter = \"linear\" for enlarging");
  }
  if (filter == Filter::cubic) return separable(v, cubic_taps(x), cubic_taps(y));
  fail(ErrorCode::usage, "match = \"opencv\" has nearest, linear, cubic and box", "resize",
       "choose one of them");
}

}  // namespace pelton::data
