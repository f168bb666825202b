// SPDX-License-Identifier: Apache-2.0
// Stages that must see pixels: what is pending before them is carried out first.
#include <algorithm>
#include <cmath>

#include "data/codec/jpeg.h"
#include "data/ops/colour.h"
#include "data/ops/stage.h"

namespace pelton::data {
namespace {

void fill_rect(Tensor& pixels, Rect r, const std::array<uint8_t, 3>& fill) {
  const int64_t w = pixels.dims()[1], c = pixels.dims()[2];
  uint8_t* p = pixels.as_mutable<uint8_t>();
  for (int y = r.y0; y < r.y1; ++y)
    for (int x = r.x0; x < r.x1; ++x)
      for (int64_t k = 0; k < c; ++k) p[(y * w + x) * c + k] = fill[static_cast<size_t>(k)];
}

StageFn make_erase(const Args& a, Match) {
  const auto scale = a.numbers("scale"), ratio = a.numbers("ratio");
  if (scale.size() != 2 || scale[0] > scale[1] || ratio.size() != 2 || !(ratio[0] > 0) || ratio[0] > ratio[1])
    fail(ErrorCode::usage, "'scale' and 'ratio' are [low, high]", a.where());
  return [scale, ratio, chance = Drawn(a, "probability"), fill = fill_from(a)](Sample& s, const Draw& d) {
    if (!chance.flag(d)) return;
    const int w = s.picture().width(), h = s.picture().height();
    for (uint32_t slot = 64; slot < 64 + 40; slot += 4) {
      const double area = d.uniform(slot, scale[0], scale[1]) * w * h,
                   aspect = std::exp(d.uniform(slot + 1, std::log(ratio[0]), std::log(ratio[1])));
      const int ew = static_cast<int>(std::lrint(std::sqrt(area * aspect))),
                eh = static_cast<int>(std::lrint(std::sqrt(area / aspect)));
      if (ew < 1 || eh < 1 || ew >= w || eh >= h) continue;
      const int x = static_cast<int>(d.below(slot + 2, w - ew + 1)),
                y = static_cast<int>(d.below(slot + 3, h - eh + 1));
      Tensor p = s.picture().pixels();
      fill_rect(p, {x, y, x + ew, y + eh}, fill);
      return s.picture().replace(std::move(p));
    }
  };
}

StageFn make_grid_mask(const Args& a, Match) {
  return [tile = Drawn(a, "tile"), ratio = Drawn(a, "ratio"), fill = fill_from(a)](Sample& s, const Draw& d) {
    Tensor p = s.picture().pixels();
    const int w = static_cast<int>(p.dims()[1]), h = static_cast<int>(p.dims()[0]);
    const int step = std::max(2, static_cast<int>(tile(d))),
              hole = std::clamp(static_cast<int>(step * ratio(d) + 0.5), 0, step);
    const int ox = static_cast<int>(d.below(64, step)), oy = static_cast<int>(d.below(65, step));
    for (int y = oy - step; y < h; y += step)
      for (int x = ox - step; x < w; x += step)
        fill_rect(p,
                  {std::clamp(x, 0, w), std::clamp(y, 0, h), std::clamp(x + hole, 0, w),
                   std::clamp(y + hole, 0, h)},
                  fill);
    s.picture().replace(std::move(p));
  };
}

// How many events there are when `mean` are expected: by the distribution's sum for few, by the normal
// approximation for many. `bits` are two uniform words.
int64_t poisson(double mean, uint32_t bits, uint32_t more) {
  if (mean <= 0) return 0;
  if (mean > 50)
    return std::max<int64_t>(
        0, std::llround(mean + std::sqrt(mean) * static_cast<double>(normal_from_bits(bits, more).first)));
  const double u = (static_cast<double>(bits) + 0.5) * 0x1p-32;
  double p = std::exp(-mean), sum = p;
  int64_t k = 0;
  while (u > sum && k < 200) sum += p *= mean / static_cast<double>(++k);
  return k;
}

StageFn make_noise(const Args& a, Match) {
  return [deviation = Drawn(a, "deviation"), salt = Drawn(a, "salt_pepper"), shot = Drawn(a, "shot")](
             Sample& s, const Draw& d) {
    Tensor p = s.picture().pixels();
    const double sigma = deviation(d), dust = salt(d), level = shot(d);
    uint8_t* v = p.as_mutable<uint8_t>();
    const int64_t c = p.dims()[2];
    if (level > 0)
      for (int64_t i = 0; i < p.count(); i += 2) {
        const PhiloxBlock words = d.block(66, static_cast<uint32_t>(i / 2));
        for (int64_t k = 0; k < std::min<int64_t>(2, p.count() - i); ++k) {
          const auto events = static_cast<double>(poisson(v[i + k] / level, words[static_cast<size_t>(2 * k)],
                                                          words[static_cast<size_t>(2 * k + 1)]));
          v[i + k] = static_cast<uint8_t>(std::min(255.0, events * level + 0.5));
        }
      }
    if (sigma > 0)
      for (int64_t i = 0; i < p.count(); i += 2) {
        const PhiloxBlock words = d.block(64, static_cast<uint32_t>(i / 2));
        const NormalPair n = normal_from_bits(words[0], words[1]);
        for (int64_t k = 0; k < std::min<int64_t>(2, p.count() - i); ++k) {
          const double x = v[i + k] + sigma * (k ? n.second : n.first);
          v[i + k] = static_cast<uint8_t>(std::clamp(x, 0.0, 255.0) + 0.5);
        }
      }
    if (dust > 0)
      for (int64_t i = 0; i < p.count() / c; ++i) {
        const PhiloxBlock words = d.block(65, static_cast<uint32_t>(i));
        if (words[0] * 0x1p-32 < dust) std::fill_n(v + i * c, c, words[1] & 1 ? 255 : 0);
      }
    s.picture().replace(std::move(p));
  };
}

// A stage that applies `f(pixels, drawn value)`.
template <class F>
std::function<StageFn(const Args&, Match)> on_pixels(const char* option, F f) {
  return [option, f](const Args& a, Match) -> StageFn {
    return [value = Drawn(a, option), chance = Drawn(a, "probability"), f](Sample& s, const Draw& d) {
      if (chance.flag(d)) s.picture().replace(f(s.picture().pixels(), value(d)));
    };
  };
}

}  // namespace

std::vector<StageKind> pixel_stage_kinds() {
  using T = OptionType;
  const OptionSpec chance = chance_option();
  auto value = [](const char* name, T type, Param fallback, const char* doc, double low, double high) {
    return OptionSpec{name, type, std::move(fallback), doc, low, high, {}, true};
  };
  return {
      {{"erase",
        "fills a random rectangle",
        {{"scale", T::numbers, std::vector<double>{0.02, 0.33}, "[low, high] share of the area", 0, 1},
         {"ratio", T::numbers, std::vector<double>{0.3, 3.3}, "[low, high] width over height", 0, 1e4},
         chance,
         fill_option()}},
       make_erase},
      {{"grid_mask",
        "fills a grid of squares",
        {value("tile", T::number, 64, "pixels from square to square", 2, 1 << 16),
         value("ratio", T::number, 0.5, "side of a square as a share of that", 0, 1), fill_option()}},
       make_grid_mask},
      {{"noise",
        "adds shot noise (as of few photons), normal noise, and black or white pixels",
        {value("deviation", T::number, 0.0, "standard deviation in levels", 0, 255),
         value("salt_pepper", T::number, 0.0, "share of pixels", 0, 1),
         value("shot", T::number, 0.0, "levels that one photon makes; 0: off", 0, 255)}},
       make_noise},
      {{"gaussian_blur",
        "blurs",
        {value("sigma", T::number, 1.0, "standard deviation in pixels", 0.05, 100), chance}},
       on_pixels("sigma", [](const Tensor& p, double v) { return blurred(p, v); })},
      {{"sharpness",
        "smooths or sharpens",
        {value("factor", T::number, {}, "0: smoothed, 1: unchanged, 2: sharpened", 0, 100), chance}},
       on_pixels("factor", [](const Tensor& p, double v) { return sharpened(p, v); })},
      {{"posterize", "keeps the high bits", {value("bits", T::integer, 4, "bits kept", 1, 8), chance}},
       on_pixels("bits", [](const Tensor& p, double v) { return posterized(p, static_cast<int>(v)); })},
      {{"solarize",
        "inverts bright values",
        {value("threshold", T::number, 128, "values from here on are inverted", 0, 256), chance}},
       on_pixels("threshold", [](const Tensor& p, double v) { return solarized(p, static_cast<int>(v)); })},
      {{"equalize", "spreads each channel's histogram evenly", {chance}},
       on_pixels("probability", [](const Tensor& p, double) { return equalized(p); })},
      {{"autocontrast", "stretches each channel to 0..255", {chance}},
       on_pixels("probability", [](const Tensor& p, double) { return autocontrasted(p); })},
      {{"jpeg_distortion",
        "the losses of JPEG coding",
        {value("quality", T::integer, 50, "JPEG quality", 1, 100), chance}},
       on_pixels("quality", [](const Tensor& p, double v) {
         const std::vector<uint8_t> bytes = jpeg_encode(p, static_cast<int>(v));
         return jpeg_decode(bytes, {}, "jpeg_distortion");
       })}};
}

}  // namespace pelton::data
