// SPDX-License-Identifier: Apache-2.0
// Resizing is separable: each axis in turn is a weighted sum over its taps, in f64, rounded once at the end.
#include <algorithm>
#include <cmath>

#include "ir/ops/common.h"
#include "ir/ops/resample.h"

namespace pelton::ir {
namespace {

double linear_kernel(double x) {
  return std::max(0.0, 1 - std::fabs(x));
}
// Cubic convolution with free parameter a.
double cubic_kernel(double x, double a) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// Where output position o lies on the input's axis.
double source_position(const ResampleAxis& axis, const std::string& how, int64_t o) {
  auto x = static_cast<double>(o), from = static_cast<double>(axis.from), to = static_cast<double>(axis.to);
  double scale = axis.scale,
         exact = axis.scale_given ? scale * from : to;  // result size before it was cut to whole
  if (how == "asymmetric") return x / scale;
  if (how == "tf_half_pixel_for_nn") return (x + 0.5) / scale;
  // The size before it was cut, as the reference of the specification and its stored case of scale 0.6 have
  // it; ONNX Runtime takes the size after.
  if (how == "align_corners") return exact == 1 || to == 1 ? 0 : x * (from - 1) / (exact - 1);
  if (how == "pytorch_half_pixel") return to > 1 ? (x + 0.5) / scale - 0.5 : 0;
  if (how == "tf_crop_and_resize") {
    double start = axis.roi_start * (from - 1), span = (axis.roi_end - axis.roi_start) * (from - 1);
    return to > 1 ? start + x * span / (to - 1) : start + span / 2;
  }
  double half = (x + 0.5) / scale - 0.5;
  return how == "half_pixel_symmetric" ? from / 2 * (1 - to / exact) + half : half;
}

int64_t nearest_index(double x, const std::string& how) {
  x = std::clamp(std::isnan(x) ? 0 : x, -1e15, 1e15);  // an index, however far outside
  if (how == "floor") return static_cast<int64_t>(std::floor(x));
  if (how == "ceil") return static_cast<int64_t>(std::ceil(x));
  return static_cast<int64_t>(how == "round_prefer_ceil" ? std::floor(x + 0.5) : std::ceil(x - 0.5));
}

}  // namespace

ResampleOptions resample_options(const Node& node) {
  return {node.get_text("mode"),  node.get_text("coordinates"),     node.get_text("nearest"),
          node.get_real("cubic"), node.get_bool("exclude_outside"), node.get_bool("antialias")};
}

std::vector<Tap> resample_taps(const ResampleAxis& axis, const ResampleOptions& options, int64_t o) {
  double x = source_position(axis, options.coordinates, o);
  if (options.coordinates == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(axis.from - 1)))
    return {};
  auto clamped = [&](int64_t i) { return std::clamp<int64_t>(i, 0, axis.from - 1); };
  if (options.mode == "nearest") return {{clamped(nearest_index(x, options.nearest)), 1}};
  bool cubic = options.mode == "cubic";
  // Shrinking with antialias stretches the kernel.
  double shrink = options.antialias ? std::min(axis.scale, 1.0) : 1.0, reach = (cubic ? 2 : 1) / shrink;
  std::vector<Tap> taps;
  double sum = 0;
  for (auto i = static_cast<int64_t>(std::ceil(x - reach)); static_cast<double>(i) <= x + reach; ++i) {
    double distance = (static_cast<double>(i) - x) * shrink;
    double weight = cubic ? cubic_kernel(distance, options.cubic) : linear_kernel(distance);
    if (weight == 0 || (options.exclude_outside && i != clamped(i))) continue;
    taps.push_back({clamped(i), weight});
    sum += weight;
  }
  if (options.exclude_outside || options.antialias)
    for (Tap& t : taps) t.weight /= sum;
  return taps;
}

// Integers truncate, as a cast does.
void eval_resample(EvalContext& c) {
  const Tensor& x = c.in(0);
  Dims to = c.dims("dims");
  const Ints& axes = c.node.get_ints("axes");
  const Floats& scales = c.node.get_floats("scales");
  ResampleOptions options = resample_options(c.node);
  bool blend = options.mode != "nearest";
  std::vector<double> roi, values = blend ? to_doubles(x) : std::vector<double>();
  if (c.has(1)) roi = to_doubles(c.in(1));
  Tensor moved = x;  // nearest moves bits
  Dims dims = x.dims();
  std::vector<std::vector<bool>> outside(dims.size());
  for (size_t k = 0; k < axes.size(); ++k) {
    auto a = static_cast<size_t>(axes[k] < 0 ? axes[k] + x.rank() : axes[k]);
    ResampleAxis axis;
    axis.from = dims[a];
    axis.to = to[a];
    if (axis.from == 0 && axis.to > 0)
      c.refuse(ErrorCode::bad_shape, cat("has nothing to sample along axis ", a));
    axis.scale_given = !scales.empty();
    axis.scale = axis.scale_given ? scales[k] : static_cast<double>(axis.to) / static_cast<double>(axis.from);
    if (roi.size() == 2 * axes.size()) {
      axis.roi_start = roi[k];
      axis.roi_end = roi[k + axes.size()];
    }
    std::vector<std::vector<Tap>> taps;
    for (int64_t o = 0; o < axis.to; ++o) {
      taps.push_back(resample_taps(axis, options, o));
      outside[a].push_back(taps.back().empty());
    }
    Dims next = dims, strides = row_major_strides(dims);
    next[a] = axis.to;
    if (!blend) {
      moved = gather_elements_by(moved, next, [&](const Dims& index) {
        int64_t at = 0;
        for (size_t d = 0; d < index.size(); ++d) {
          const auto& tap = taps[static_cast<size_t>(index[a])];
          at += (d != a ? index[d] : tap.empty() ? 0 : tap[0].index) * strides[d];
        }
        return at;
      });
    } else {
      std::vector<double> result;
      result.reserve(static_cast<size_t>(element_count(next)));
      for_each_index(next, [&](const Dims& index) {
        int64_t base = 0;
        for (size_t d = 0; d < index.size(); ++d)
          if (d != a) base += index[d] * strides[d];
        double sum = 0;
        for (const Tap& t : taps[static_cast<size_t>(index[a])])
          sum += t.weight * values[static_cast<size_t>(base + t.index * strides[a])];
        result.push_back(sum);
      });
      values.swap(result);
    }
    dims = next;
  }
  Tensor out = blend ? from_doubles(x.dtype(), dims, values) : std::move(moved);
  if (options.coordinates == "tf_crop_and_resize") {
    Tensor fill = Tensor::full(x.dtype(), {1}, c.node.get_real("extrapolation"));
    out = out.clone();
    int64_t i = 0;
    for_each_index(dims, [&](const Dims& index) {
      for (size_t d = 0; d < index.size(); ++d)
        if (!outside[d].empty() && outside[d][static_cast<size_t>(index[d])]) {
          copy_element(out, i, fill, 0);
          break;
        }
      ++i;
    });
  }
  c.out(0, std::move(out));
}

}  // namespace pelton::ir
