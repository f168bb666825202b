// SPDX-License-Identifier: Apache-2.0
// Resizes with the arithmetic of OpenCV's resize on 8-bit pictures. nearest and linear are integer and
// bit-exact; box stands for INTER_AREA and cubic for INTER_CUBIC, both within one level (sums in float).
// OpenCV has no antialiasing beyond INTER_AREA.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ir/image/exact.h"

namespace pelton::ir {
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

class Linear final : public ExactResize {
 public:
  Linear(const Axis& x, const Axis& y, int channels)
      : x_(linear_taps(x, true)), y_(linear_taps(y, false)), channels_(channels) {}
  int64_t scratch_bytes() const override { return int64_t{8} * width(); }

  void run(const PlaneView& v, uint8_t* out, void* scratch) const override {
    int *upper = static_cast<int*>(scratch), *lower = upper + width();
    for (const Tap2& t : y_) {
      horizontal(v, t.at, upper);
      horizontal(v, t.next, lower);
      for (int64_t i = 0; i < width(); ++i)
        *out++ = static_cast<uint8_t>(
            (((t.w0 * (upper[i] >> 4)) >> 16) + ((t.w1 * (lower[i] >> 4)) >> 16) + 2) >> 2);
    }
  }

 private:
  int64_t width() const { return static_cast<int64_t>(x_.size()) * channels_; }
  void horizontal(const PlaneView& v, int y, int* row) const {
    const uint8_t* src = v.data + (y - v.y0) * v.pitch;
    for (const Tap2& t : x_)
      for (int k = 0; k < channels_; ++k)
        *row++ = src[(t.at - v.x0) * channels_ + k] * t.w0 + src[(t.next - v.x0) * channels_ + k] * t.w1;
  }
  std::vector<Tap2> x_, y_;
  int channels_;
};

std::vector<int> nearest_indices(const Axis& a) {
  const int size = a.high - a.low;
  const double scale = 1.0 / (static_cast<double>(a.n) / size);
  std::vector<int> out(static_cast<size_t>(a.n));
  for (int i = 0; i < a.n; ++i)
    out[static_cast<size_t>(i)] = a.low + std::min(static_cast<int>(std::floor(i * scale)), size - 1);
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

class Separable final : public ExactResize {
 public:
  Separable(Taps x, Taps y, int channels) : x_(std::move(x)), y_(std::move(y)), channels_(channels) {}
  int64_t scratch_bytes() const override { return int64_t{4} * width(); }

  void run(const PlaneView& v, uint8_t* out, void* scratch) const override {
    auto* const sum = static_cast<float*>(scratch);
    const int c = channels_;
    for (const auto& rows : y_.of) {
      std::fill_n(sum, width(), 0.f);
      for (auto [y, wy] : rows) {
        const uint8_t* src = v.data + (y - v.y0) * v.pitch;
        float* o = sum;
        for (const auto& columns : x_.of)
          for (int k = 0; k < c; ++k) {
            float line = 0;
            for (auto [x, wx] : columns) line += static_cast<float>(src[(x - v.x0) * c + k]) * wx;
            *o++ += wy * line;
          }
      }
      for (int64_t i = 0; i < width(); ++i)
        *out++ = static_cast<uint8_t>(std::clamp<long>(std::lrint(sum[i]), 0, 255));
    }
  }

 private:
  int64_t width() const { return static_cast<int64_t>(x_.of.size()) * channels_; }
  Taps x_, y_;
  int channels_;
};

// Linear and area shrinking by two on both sides: the mean of 2x2 pixels, halves upwards.
class Halve final : public ExactResize {
 public:
  Halve(const Axis& x, const Axis& y) : x_(x), y_(y) {}
  void run(const PlaneView& v, uint8_t* out, void*) const override {
    for (int y = 0; y < y_.n; ++y) {
      const uint8_t* in = v.data + (y_.low + 2 * y - v.y0) * v.pitch + (x_.low - v.x0) * v.channels;
      for (int x = 0; x < x_.n; ++x, in += 2 * v.channels)
        for (int k = 0; k < v.channels; ++k) {
          const uint8_t* p = in + k;
          *out++ =
              static_cast<uint8_t>((p[0] + p[v.channels] + p[v.pitch] + p[v.pitch + v.channels] + 2) >> 2);
        }
    }
  }

 private:
  Axis x_, y_;
};

}  // namespace

std::unique_ptr<ExactResize> opencv_resize(const Axis& x, const Axis& y, Filter filter, int channels) {
  if (filter == Filter::nearest) return pick_resize(nearest_indices(x), nearest_indices(y));
  const int w = x.high - x.low, h = y.high - y.low;
  if (filter != Filter::cubic && w == 2 * x.n && h == 2 * y.n) return std::make_unique<Halve>(x, y);
  if (filter == Filter::linear) return std::make_unique<Linear>(x, y, channels);
  if (filter == Filter::cubic) return std::make_unique<Separable>(cubic_taps(x), cubic_taps(y), channels);
  if (w < x.n || h < y.n)
    fail(ErrorCode::usage,
         cat("match = \"opencv\" with filter = \"box\" only shrinks, not ", w, "x", h, " to ", x.n, "x", y.n),
         "", "use filter = \"linear\" for enlarging");
  return std::make_unique<Separable>(area_taps(x), area_taps(y), channels);
}

}  // namespace pelton::ir
