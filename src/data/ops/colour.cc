// SPDX-License-Identifier: Apache-2.0
#include "data/ops/colour.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "data/ops/stage.h"

namespace pelton::data {
namespace {

constexpr double kLuma[3] = {0.299, 0.587, 0.114};

// The same map for every value of a channel.
template <class F>
Tensor mapped(const Tensor& pixels, F table_of_channel) {
  const int64_t c = pixels.dims()[2];
  Tensor out(DType::u8, pixels.dims());
  const uint8_t* src = pixels.as<uint8_t>();
  uint8_t* dst = out.as_mutable<uint8_t>();
  for (int64_t k = 0; k < c; ++k) {
    const std::array<uint8_t, 256> table = table_of_channel(k);
    for (int64_t i = k; i < pixels.count(); i += c) dst[i] = table[src[i]];
  }
  return out;
}

std::array<int64_t, 256> histogram(const Tensor& pixels, int64_t channel) {
  std::array<int64_t, 256> h{};
  const uint8_t* src = pixels.as<uint8_t>();
  for (int64_t i = channel; i < pixels.count(); i += pixels.dims()[2]) ++h[src[i]];
  return h;
}

using MatrixOf = ColourMatrix (*)(double);
StageKind matrix_stage(const char* name, const char* doc, const char* option, const char* option_doc,
                       MatrixOf matrix, double low) {
  return {{name, doc, {{option, OptionType::number, {}, option_doc, low, kNone, {}, true}}},
          [option, matrix](const Args& a, Match) -> StageFn {
            return [value = Drawn(a, option), matrix](Sample& s, const Draw& d) {
              s.picture().recolour(matrix(value(d)));
            };
          }};
}

}  // namespace

ColourMatrix brightness_matrix(double f) {
  const float v = static_cast<float>(f);
  return {v, 0, 0, 0, 0, v, 0, 0, 0, 0, v, 0};
}

ColourMatrix contrast_matrix(double f) {
  const float v = static_cast<float>(f), add = 127.5f * (1 - v);
  return {v, 0, 0, add, 0, v, 0, add, 0, 0, v, add};
}

ColourMatrix saturation_matrix(double f) {
  ColourMatrix m{};
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j) m[4 * i + j] = static_cast<float>((i == j ? f : 0) + (1 - f) * kLuma[j]);
  return m;
}

ColourMatrix hue_matrix(double degrees) {
  // Chroma of the YIQ space turned by the angle.
  const double t = degrees * std::numbers::pi / 180, c = std::cos(t), s = std::sin(t);
  const double yiq[9] = {0.299, 0.587, 0.114, 0.595716, -0.274453, -0.321263, 0.211456, -0.522591, 0.311135};
  const double turn[9] = {1, 0, 0, 0, c, -s, 0, s, c};
  Matrix to{}, turned{};
  std::copy_n(yiq, 9, to.begin());
  std::copy_n(turn, 9, turned.begin());
  const Matrix m = multiply(inverse(to), multiply(turned, to));
  ColourMatrix out{};
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < 3; ++j) out[4 * i + j] = static_cast<float>(m[3 * i + j]);
  return out;
}

ColourMatrix invert_matrix() {
  return {-1, 0, 0, 255, 0, -1, 0, 255, 0, 0, -1, 255};
}

Tensor posterized(const Tensor& pixels, int bits) {
  const int mask = 0xff & ~((1 << (8 - bits)) - 1);
  return mapped(pixels, [&](int64_t) {
    std::array<uint8_t, 256> t;
    for (int i = 0; i < 256; ++i) t[static_cast<size_t>(i)] = static_cast<uint8_t>(i & mask);
    return t;
  });
}

Tensor solarized(const Tensor& pixels, int threshold) {
  return mapped(pixels, [&](int64_t) {
    std::array<uint8_t, 256> t;
    for (int i = 0; i < 256; ++i)
      t[static_cast<size_t>(i)] = static_cast<uint8_t>(i < threshold ? i : 255 - i);
    return t;
  });
}

Tensor equalized(const Tensor& pixels) {
  return mapped(pixels, [&](int64_t channel) {
    const auto h = histogram(pixels, channel);
    int64_t total = 0, last = 0, levels = 0;
    for (int64_t n : h) total += n, levels += n > 0, last = n ? n : last;
    std::array<uint8_t, 256> t;
    const int64_t step = (total - last) / 255;
    int64_t sum = step / 2;
    for (size_t i = 0; i < 256; ++i) {
      t[i] = levels <= 1 || step == 0 ? static_cast<uint8_t>(i)
                                      : static_cast<uint8_t>(std::min<int64_t>(255, sum / step));
      sum += h[i];
    }
    return t;
  });
}

Tensor autocontrasted(const Tensor& pixels) {
  return mapped(pixels, [&](int64_t channel) {
    const auto h = histogram(pixels, channel);
    int low = 0, high = 255;
    while (low < 255 && !h[static_cast<size_t>(low)]) ++low;
    while (high > 0 && !h[static_cast<size_t>(high)]) --high;
    std::array<uint8_t, 256> t;
    for (int i = 0; i < 256; ++i)
      t[static_cast<size_t>(i)] =
          high <= low ? static_cast<uint8_t>(i)
                      : static_cast<uint8_t>(std::clamp(255.0 * (i - low) / (high - low), 0.0, 255.0));
    return t;
  });
}

Tensor blurred(const Tensor& pixels, double sigma) {
  const int64_t h = pixels.dims()[0], w = pixels.dims()[1], c = pixels.dims()[2];
  const int radius = std::max(1, static_cast<int>(std::ceil(3 * sigma)));
  std::vector<float> weight(static_cast<size_t>(2 * radius + 1));
  double sum = 0;
  for (int i = -radius; i <= radius; ++i) sum += std::exp(-0.5 * i * i / (sigma * sigma));
  for (int i = -radius; i <= radius; ++i)
    weight[static_cast<size_t>(i + radius)] =
        static_cast<float>(std::exp(-0.5 * i * i / (sigma * sigma)) / sum);
  std::vector<float> middle(static_cast<size_t>(pixels.count()), 0.f);
  const uint8_t* src = pixels.as<uint8_t>();
  for (int64_t y = 0; y < h; ++y)
    for (int k = -radius; k <= radius; ++k) {
      const uint8_t* row = src + std::clamp<int64_t>(y + k, 0, h - 1) * w * c;
      float* out = middle.data() + y * w * c;
      const float f = weight[static_cast<size_t>(k + radius)];
      for (int64_t i = 0; i < w * c; ++i) out[i] += f * static_cast<float>(row[i]);
    }
  Tensor result(DType::u8, pixels.dims());
  uint8_t* dst = result.as_mutable<uint8_t>();
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x)
      for (int64_t k = 0; k < c; ++k) {
        float v = 0;
        for (int i = -radius; i <= radius; ++i)
          v += weight[static_cast<size_t>(i + radius)] *
               middle[static_cast<size_t>((y * w + std::clamp<int64_t>(x + i, 0, w - 1)) * c + k)];
        *dst++ = static_cast<uint8_t>(std::clamp(v, 0.f, 255.f) + 0.5f);
      }
  return result;
}

Tensor sharpened(const Tensor& pixels, double factor) {
  const int64_t h = pixels.dims()[0], w = pixels.dims()[1], c = pixels.dims()[2];
  Tensor out = pixels.clone();
  const uint8_t* src = pixels.as<uint8_t>();
  uint8_t* dst = out.as_mutable<uint8_t>();
  for (int64_t y = 1; y + 1 < h; ++y)  // the border stays as it is
    for (int64_t x = 1; x + 1 < w; ++x)
      for (int64_t k = 0; k < c; ++k) {
        int sum = 4 * src[(y * w + x) * c + k];
        for (int64_t j = -1; j <= 1; ++j)
          for (int64_t i = -1; i <= 1; ++i) sum += src[((y + j) * w + x + i) * c + k];
        const double smooth = sum / 13.0, v = smooth + factor * (src[(y * w + x) * c + k] - smooth);
        dst[(y * w + x) * c + k] = static_cast<uint8_t>(std::clamp(v, 0.0, 255.0) + 0.5);
      }
  return out;
}

std::vector<StageKind> colour_stage_kinds() {
  std::vector<StageKind> kinds = {
      matrix_stage("brightness", "multiplies by a factor", "factor", "1: unchanged", brightness_matrix, 0),
      matrix_stage("contrast", "stretches about mid-grey", "factor", "1: unchanged", contrast_matrix, 0),
      matrix_stage("saturation", "stretches colours about their luma", "factor", "1: unchanged, 0: grey",
                   saturation_matrix, 0),
      matrix_stage("hue", "turns colours, luma stays", "degrees", "angle", hue_matrix, kAny)};
  kinds.push_back({{"grayscale",
                    "one channel of luma, or three equal ones",
                    {{"probability",
                      OptionType::boolean,
                      true,
                      "a distribution { coin = p } makes it random (then three channels stay)",
                      kAny,
                      kNone,
                      {},
                      true},
                     {"channels", OptionType::integer, 3, "1 or 3", 1, 3}}},
                   [](const Args& a, Match) -> StageFn {
                     const int64_t channels = a.integer("channels");
                     if (channels == 2 || (channels == 1 && a.param("probability").is_random()))
                       fail(ErrorCode::usage, "'channels' is 1 or 3, and 3 when random", a.where());
                     return [chance = Drawn(a, "probability"), channels](Sample& s, const Draw& d) {
                       if (!chance.flag(d)) return;
                       if (channels == 1)
                         s.picture().to_grey();
                       else
                         s.picture().recolour(saturation_matrix(0));
                     };
                   }});
  return kinds;
}

}  // namespace pelton::data
