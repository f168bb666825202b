// SPDX-License-Identifier: Apache-2.0
// Stages on whole batches: mixup and cutmix. Neighbours (0 with 1, 2 with 3 ...) mix with each other, so both
// work in place; the last sample of an odd batch stays. What is drawn is a function of seed, epoch and the
// first sample of a pair; which samples are neighbours depends on the order, so on batch size and shards.
#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "data/ops/stage.h"
#include "tensor/float_types.h"

namespace pelton::data {
namespace {

// Gamma(shape, 1) by Marsaglia and Tsang; slots from `slot` on.
double gamma_of(const Draw& d, uint32_t slot, double shape) {
  if (shape < 1)
    return gamma_of(d, slot + 1, shape + 1) * std::pow(std::max(d.uniform(slot), 1e-300), 1 / shape);
  const double a = shape - 1.0 / 3, c = 1 / std::sqrt(9 * a);
  for (uint32_t k = 0; k < 64; ++k) {
    const double x = d.normal(slot + 2 * k), v = std::pow(1 + c * x, 3);
    if (v > 0 &&
        std::log(std::max(d.uniform(slot + 2 * k + 1), 1e-300)) < 0.5 * x * x + a - a * v + a * std::log(v))
      return a * v;
  }
  return a;
}

double beta_of(const Draw& d, double alpha) {
  const double x = gamma_of(d, 64, alpha), y = gamma_of(d, 256, alpha);
  return x + y > 0 ? x / (x + y) : 0.5;
}

void blend(float* a, float* b, int64_t n, float own) {
  for (int64_t i = 0; i < n; ++i) {
    const float x = a[i], y = b[i];
    a[i] = own * x + (1 - own) * y;
    b[i] = own * y + (1 - own) * x;
  }
}

void blend(Half* a, Half* b, int64_t n, float own) {
  for (int64_t i = 0; i < n; ++i) {
    const float x = f16_to_float(a[i].bits), y = f16_to_float(b[i].bits);
    a[i].bits = f16_from_float(own * x + (1 - own) * y);
    b[i].bits = f16_from_float(own * y + (1 - own) * x);
  }
}

void blend(uint8_t* a, uint8_t* b, int64_t n, float own) {
  for (int64_t i = 0; i < n; ++i) {
    const float x = a[i], y = b[i];
    a[i] = static_cast<uint8_t>(own * x + (1 - own) * y + 0.5f);
    b[i] = static_cast<uint8_t>(own * y + (1 - own) * x + 0.5f);
  }
}

struct MixOptions {
  std::string field, label;
  double alpha;
  Drawn probability;
};

struct Pair {
  int64_t first;  // slot in the batch; its partner follows
  Draw draw;
};

// Runs f(pair) -> share of the own label, over all pairs, and mixes the labels.
template <class F>
void over_pairs(Batch& b, const MixOptions& o, const std::function<Draw(int64_t)>& draw_of, F f) {
  auto tensor = [&](const std::string& name) -> Tensor& {
    b.at(name);  // lists the fields when there is none
    return std::ranges::find(b.fields, name, &std::pair<std::string, Tensor>::first)->second;
  };
  Tensor& label = tensor(o.label);
  if (label.dtype() != DType::f32 || label.rank() != 2)
    fail(ErrorCode::usage, cat("labels to mix are f32 [N, classes], but '", o.label, "' is ", label),
         "mixup, cutmix", "add a one_hot stage before");
  Tensor& image = tensor(o.field);
  if (image.dtype() != DType::f32 && image.dtype() != DType::f16 && image.dtype() != DType::u8)
    fail(ErrorCode::bad_type, cat("pictures to mix are f32, f16 or u8, but '", o.field, "' is ", image),
         "mixup, cutmix");
  image.mutable_data();
  float* const labels = label.as_mutable<float>();
  const int64_t classes = label.dims()[1];
  parallel_for(0, b.count() / 2, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t i = 2 * k;
      if (!b.valid[static_cast<size_t>(i)] || !b.valid[static_cast<size_t>(i) + 1]) continue;
      const Pair p{i, draw_of(b.indices[static_cast<size_t>(i)])};
      if (!o.probability.flag(p.draw)) continue;
      const float own = f(image, p);
      blend(labels + i * classes, labels + (i + 1) * classes, classes, own);
    }
  });
}

template <class F>
void typed(Tensor& t, F f) {
  if (t.dtype() == DType::f32) return f(t.as_mutable<float>());
  if (t.dtype() == DType::f16) return f(static_cast<Half*>(t.mutable_data()));
  f(t.as_mutable<uint8_t>());
}

BatchFn make_mixup(const Args& a) {
  return [o = MixOptions{a.text("field"), a.text("label"), a.number("alpha"), Drawn(a, "probability")}](
             Batch& b, const std::function<Draw(int64_t)>& draw_of) {
    over_pairs(b, o, draw_of, [&](Tensor& image, const Pair& p) {
      const auto own = static_cast<float>(beta_of(p.draw, o.alpha));
      const int64_t n = image.count() / image.dims()[0];
      typed(image, [&](auto* x) { blend(x + p.first * n, x + (p.first + 1) * n, n, own); });
      return own;
    });
  };
}

// A rectangle changes places between the two pictures.
BatchFn make_cutmix(const Args& a) {
  return [o = MixOptions{a.text("field"), a.text("label"), a.number("alpha"), Drawn(a, "probability")}](
             Batch& b, const std::function<Draw(int64_t)>& draw_of) {
    over_pairs(b, o, draw_of, [&](Tensor& image, const Pair& p) {
      const Dims& d = image.dims();
      if (d.size() != 4)
        fail(ErrorCode::bad_shape, cat("cutmix takes pictures, but '", o.field, "' is ", image), "cutmix");
      const bool first = (d[1] == 1 || d[1] == 3) && d[3] != 1 && d[3] != 3;  // channels
      const int64_t h = first ? d[2] : d[1], w = first ? d[3] : d[2], inner = first ? 1 : d[3],
                    planes = first ? d[1] : 1, n = image.count() / d[0];
      const double side = std::sqrt(1 - beta_of(p.draw, o.alpha));
      const auto cut = [&](uint32_t slot, int64_t size, int64_t& from, int64_t& to) {
        const auto half = static_cast<int64_t>(side * static_cast<double>(size) / 2);
        const int64_t centre = p.draw.below(slot, size);
        from = std::max<int64_t>(0, centre - half), to = std::min(size, centre + half);
      };
      int64_t x0, x1, y0, y1;
      cut(32, w, x0, x1);
      cut(33, h, y0, y1);
      typed(image, [&](auto* x) {
        for (int64_t c = 0; c < planes; ++c)
          for (int64_t y = y0; y < y1; ++y) {
            auto* row = x + p.first * n + (c * h + y) * w * inner;
            std::swap_ranges(row + x0 * inner, row + x1 * inner, row + n + x0 * inner);
          }
      });
      return static_cast<float>(1 - static_cast<double>((x1 - x0) * (y1 - y0)) / static_cast<double>(h * w));
    });
  };
}

}  // namespace

std::vector<StageKind> mix_stage_kinds() {
  using T = OptionType;
  const std::vector<OptionSpec> options = {
      {"alpha", T::number, 1.0, "both parameters of the beta distribution that shares are drawn from", 1e-3,
       100},
      {"probability",
       T::boolean,
       true,
       "a distribution { coin = p } leaves pairs as they are",
       kAny,
       kNone,
       {},
       true},
      {"field", T::text, "image", "the pictures"},
      {"label", T::text, "label", "f32 [classes] of a sample, mixed alike"}};
  return {{{"mixup", "neighbours of a batch blend with each other", options}, {}, make_mixup},
          {{"cutmix", "a rectangle changes places between neighbours of a batch", options}, {}, make_cutmix}};
}

}  // namespace pelton::data
