// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "ir/ops/common.h"
#include "ir/ops/resample.h"

namespace pelton::ir {
namespace {

struct GridOptions {
  std::string mode, padding;
  bool corners = false;
};

// Mirrors x into [low, high] as often as needed.
double reflect(double x, double low, double high) {
  double span = high - low;
  if (span <= 0) return low;
  double away = std::fmod(std::fabs(x - low), 2 * span);
  return low + (away > span ? 2 * span - away : away);
}

// Index of the element that stands at position i of an axis of `size`, or -1 for zero.
int64_t padded(int64_t i, int64_t size, const GridOptions& o) {
  if (i >= 0 && i < size) return i;
  if (o.padding == "zeros") return -1;
  if (o.padding == "border") return std::clamp<int64_t>(i, 0, size - 1);
  double low = o.corners ? 0 : -0.5, high = static_cast<double>(size) - (o.corners ? 1 : 0.5);
  auto mirrored = static_cast<int64_t>(std::floor(reflect(static_cast<double>(i), low, high) + 0.5));
  return std::clamp<int64_t>(mirrored, 0, size - 1);
}

// Taps along one axis for the normalised coordinate v; -1 as index reads zero.
std::vector<Tap> grid_taps(double v, int64_t size, const GridOptions& o) {
  auto n = static_cast<double>(size);
  double x = o.corners ? (v + 1) / 2 * (n - 1) : ((v + 1) * n - 1) / 2;
  double low = o.corners ? 0 : -0.5, high = n - (o.corners ? 1 : 0.5);
  if (std::isnan(x)) x = -2 * n - 8;  // outside
  if (o.mode == "nearest") x = std::nearbyint(x);
  if (x < low || x > high) {
    if (o.padding == "border" && o.mode != "cubic")
      x = std::clamp(x, 0.0, n - 1);  // cubic clamps its taps alone
    if (o.padding == "reflection") x = reflect(x, low, high);
    x = std::clamp(x, -2 * n - 8, 3 * n + 8);  // still outside, but an index
  }
  auto first = static_cast<int64_t>(std::floor(x));
  double r = x - static_cast<double>(first);
  if (o.mode == "nearest") return {{padded(static_cast<int64_t>(std::nearbyint(x)), size, o), 1}};
  if (o.mode == "linear") {
    std::vector<Tap> taps{{padded(first, size, o), 1 - r}};
    if (r > 0) taps.push_back({padded(first + 1, size, o), r});
    return taps;
  }
  constexpr double a = -0.75;
  auto near = [](double t) { return ((a + 2) * t - (a + 3)) * t * t + 1; };
  auto far = [](double t) { return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a; };
  return {{padded(first - 1, size, o), far(r + 1)},
          {padded(first, size, o), near(r)},
          {padded(first + 1, size, o), near(1 - r)},
          {padded(first + 2, size, o), far(2 - r)}};
}

}  // namespace

void eval_grid_sample(EvalContext& c) {
  const Tensor &x = c.in(0), &grid = c.in(1);
  GridOptions options{c.node.get_text("mode"), c.node.get_text("padding"), c.node.get_bool("align_corners")};
  Dims spatial(x.dims().begin() + 2, x.dims().end()), to(grid.dims().begin() + 1, grid.dims().end() - 1);
  size_t rank = spatial.size();
  int64_t batch = x.dims()[0], channels = x.dims()[1], pixels = element_count(spatial),
          points = element_count(to);
  for (int64_t s : spatial)
    if (s == 0 && batch * points > 0)
      c.refuse(ErrorCode::bad_shape, cat("has nothing to sample in ", x.str()));
  Dims strides = row_major_strides(spatial);
  std::vector<double> in = to_doubles(x), at = to_doubles(grid);
  std::vector<double> out(static_cast<size_t>(batch * channels * points), 0.0);
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t p = 0; p < points; ++p) {
      std::vector<std::vector<Tap>> taps;  // of each spatial axis; the grid names the last axis first
      Dims counts;
      for (size_t d = 0; d < rank; ++d) {
        double v = at[static_cast<size_t>(n * points + p) * rank + (rank - 1 - d)];
        taps.push_back(grid_taps(v, spatial[d], options));
        counts.push_back(static_cast<int64_t>(taps.back().size()));
      }
      for_each_index(counts, [&](const Dims& which) {
        double weight = 1;
        int64_t offset = 0;
        for (size_t d = 0; d < rank; ++d) {
          const Tap& t = taps[d][static_cast<size_t>(which[d])];
          if (t.index < 0) return;
          weight *= t.weight;
          offset += t.index * strides[d];
        }
        for (int64_t k = 0; k < channels; ++k)
          out[static_cast<size_t>((n * channels + k) * points + p)] +=
              weight * in[static_cast<size_t>((n * channels + k) * pixels + offset)];
      });
    }
  Dims dims{batch, channels};
  dims.insert(dims.end(), to.begin(), to.end());
  c.out(0, from_doubles(x.dtype(), dims, out));
}

void eval_affine_grid(EvalContext& c) {
  Dims dims = c.dims("dims"), spatial(dims.begin() + 2, dims.end());
  bool corners = c.node.get_bool("align_corners");
  std::vector<double> theta = to_doubles(c.in(0)), out;
  auto rank = static_cast<int64_t>(spatial.size());
  for (int64_t n = 0; n < dims[0]; ++n)
    for_each_index(spatial, [&](const Dims& index) {
      std::vector<double> base;  // x, y, (z), 1
      for (size_t d = spatial.size(); d-- > 0;) {
        auto i = static_cast<double>(index[d]), size = static_cast<double>(spatial[d]);
        base.push_back(corners ? (spatial[d] == 1 ? 0 : 2 * i / (size - 1) - 1) : (2 * i + 1) / size - 1);
      }
      base.push_back(1);
      for (int64_t r = 0; r < rank; ++r) {
        double sum = 0;
        for (int64_t k = 0; k <= rank; ++k)
          sum += theta[static_cast<size_t>((n * rank + r) * (rank + 1) + k)] * base[static_cast<size_t>(k)];
        out.push_back(sum);
      }
    });
  Dims to{dims[0]};
  to.insert(to.end(), spatial.begin(), spatial.end());
  to.push_back(rank);
  c.out(0, from_doubles(c.in(0).dtype(), to, out));
}

}  // namespace pelton::ir
