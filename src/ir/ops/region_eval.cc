// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/ops/common.h"
#include "ir/ops/region.h"

namespace pelton::ir {
namespace {

int64_t image_of(const EvalContext& c, double index) {
  auto n = static_cast<int64_t>(index);
  if (n < 0 || n >= c.in(0).dims()[0])
    c.refuse(ErrorCode::bad_shape, cat("has batch index ", n, " for a batch of ", c.in(0).dims()[0]));
  return n;
}

// The four weighted neighbours of a sample; all weights 0 outside the image.
struct Sample {
  int64_t at[4] = {};
  double weight[4] = {};
};
Sample sample(double y, double x, int64_t height, int64_t width) {
  Sample s;
  if (!(y >= -1 && y <= static_cast<double>(height) && x >= -1 && x <= static_cast<double>(width))) return s;
  y = std::clamp(y, 0.0, static_cast<double>(height - 1));
  x = std::clamp(x, 0.0, static_cast<double>(width - 1));
  auto top = static_cast<int64_t>(y), left = static_cast<int64_t>(x);
  int64_t bottom = std::min(top + 1, height - 1), right = std::min(left + 1, width - 1);
  double down = y - static_cast<double>(top), across = x - static_cast<double>(left);
  const int64_t rows[] = {top, top, bottom, bottom}, columns[] = {left, right, left, right};
  const double weights[] = {(1 - down) * (1 - across), (1 - down) * across, down * (1 - across),
                            down * across};
  for (int i = 0; i < 4; ++i) {
    s.at[i] = rows[i] * width + columns[i];
    s.weight[i] = weights[i];
  }
  return s;
}

// A cell samples each element that it covers: of a box far larger than any picture even those are too many.
constexpr double kMostSamples = 4096;

// Where along an axis a cell's samples lie.
double place(double start, double cell, int64_t i, int64_t step, int64_t steps) {
  return start +
         (static_cast<double>(i) + (static_cast<double>(step) + 0.5) / static_cast<double>(steps)) * cell;
}

// Of each cell's samples along an axis the first one in reach of the image, and the end of those: what lies
// outside need not be walked through for every channel.
struct Reach {
  int64_t first = 0, end = 0;
};
std::vector<Reach> reaches(double start, double cell, int64_t cells, int64_t steps, int64_t size) {
  std::vector<Reach> out(static_cast<size_t>(cells));
  for (int64_t i = 0; i < cells; ++i)
    for (int64_t step = 0; step < steps; ++step) {
      const double at = place(start, cell, i, step, steps);
      Reach& r = out[static_cast<size_t>(i)];
      if (!(at >= -1 && at <= static_cast<double>(size))) continue;
      if (r.end == 0) r.first = step;
      r.end = step + 1;
    }
  return out;
}

}  // namespace

// A cell averages its samples; mode max takes the largest weighted neighbour of any sample, as ONNX does.
void eval_roi_align(EvalContext& c) {
  const Dims& d = c.in(0).dims();
  int64_t channels = d[1], height = d[2], width = d[3], regions = c.in(1).dims()[0];
  int64_t rows = c.node.get_int("height"), columns = c.node.get_int("width"),
          fixed = c.node.get_int("sampling");
  bool half = c.node.get_bool("half_pixel"), average = c.node.get_text("mode") == "avg";
  double scale = c.node.get_real("scale"), shift = half ? 0.5 : 0;
  std::vector<double> image = to_doubles(c.in(0)), rois = to_doubles(c.in(1));
  std::vector<double> out;
  if (height == 0 || width == 0) {  // every sample lies outside
    c.out(0, Tensor::zeros(c.in(0).dtype(), {regions, channels, rows, columns}));
    return;
  }
  for (int64_t r = 0; r < regions; ++r) {
    int64_t n = image_of(c, c.in(2).get_double(r));
    auto corner = [&](size_t k) { return rois[static_cast<size_t>(r) * 4 + k] * scale - shift; };
    double left = corner(0), top = corner(1), wide = corner(2) - left, tall = corner(3) - top;
    if (!half) {
      wide = std::max(wide, 1.0);
      tall = std::max(tall, 1.0);
    }
    double cell_h = tall / static_cast<double>(rows), cell_w = wide / static_cast<double>(columns);
    auto samples = [&](double cell) {
      if (fixed > 0) return fixed;
      if (!(cell <= kMostSamples))
        c.refuse(ErrorCode::limit,
                 cat("box ", r, " has cells of ", cell, " elements, more than ", kMostSamples));
      return static_cast<int64_t>(std::ceil(std::max(cell, 0.0)));
    };
    int64_t down = samples(cell_h), across = samples(cell_w);
    const std::vector<Reach> ys = reaches(top, cell_h, rows, down, height);
    const std::vector<Reach> xs = reaches(left, cell_w, columns, across, width);
    for (int64_t k = 0; k < channels; ++k) {
      const double* plane = image.data() + (n * channels + k) * height * width;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) {
          double sum = 0, best = -std::numeric_limits<double>::infinity();
          const Reach y = ys[static_cast<size_t>(i)], x = xs[static_cast<size_t>(j)];
          auto add = [&](const Sample& s) {
            for (int t = 0; t < 4; ++t) {
              double value = s.weight[t] * plane[s.at[t]];
              sum += value;
              best = std::max(best, value);
            }
          };
          for (int64_t v = y.first; v < y.end; ++v)
            for (int64_t u = x.first; u < x.end; ++u)
              add(sample(place(top, cell_h, i, v, down), place(left, cell_w, j, u, across), height, width));
          if (y.end - y.first < down || x.end - x.first < across) add(Sample());  // as each outside does
          bool none = down <= 0 || across <= 0;
          out.push_back(none ? 0 : average ? sum / static_cast<double>(down * across) : best);
        }
    }
  }
  c.out(0, from_doubles(c.in(0).dtype(), {regions, channels, rows, columns}, out));
}

// Corners round to whole pixels (halves away from zero); an empty cell yields 0.
void eval_max_roi_pool(EvalContext& c) {
  const Dims& d = c.in(0).dims();
  int64_t channels = d[1], height = d[2], width = d[3], regions = c.in(1).dims()[0];
  int64_t rows = c.node.get_int("height"), columns = c.node.get_int("width");
  double scale = c.node.get_real("scale");
  std::vector<double> x = to_doubles(c.in(0)), rois = to_doubles(c.in(1)), out;
  for (int64_t r = 0; r < regions; ++r) {
    const double* roi = rois.data() + r * 5;
    int64_t n = image_of(c, roi[0]);
    double left = std::round(roi[1] * scale), top = std::round(roi[2] * scale);
    double wide = std::max(std::round(roi[3] * scale) - left + 1, 1.0),
           tall = std::max(std::round(roi[4] * scale) - top + 1, 1.0);
    auto edge = [](double cell, int64_t i, double start, int64_t limit, bool end) {
      double at =
          (end ? std::ceil(static_cast<double>(i + 1) * cell) : std::floor(static_cast<double>(i) * cell)) +
          start;
      return static_cast<int64_t>(std::clamp(at, 0.0, static_cast<double>(limit)));
    };
    double cell_h = tall / static_cast<double>(rows), cell_w = wide / static_cast<double>(columns);
    for (int64_t k = 0; k < channels; ++k)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j) {
          double best = 0;
          bool first = true;
          for (int64_t v = edge(cell_h, i, top, height, false); v < edge(cell_h, i, top, height, true); ++v)
            for (int64_t u = edge(cell_w, j, left, width, false); u < edge(cell_w, j, left, width, true);
                 ++u) {
              double value = x[static_cast<size_t>(((n * channels + k) * height + v) * width + u)];
              if (first || std::isnan(value) || value > best) best = value;
              first = false;
            }
          out.push_back(best);
        }
  }
  c.out(0, from_doubles(c.in(0).dtype(), {regions, channels, rows, columns}, out));
}

// Per image and class, by falling score (ties: lower index): a box stays if its score is above the threshold
// and no box kept before overlaps it by more than `iou`. Rows (image, class, box) in that order.
void eval_nms(EvalContext& c) {
  const Dims& d = c.in(1).dims();
  int64_t images = d[0], classes = d[1], count = d[2], limit = c.in(2).get_int(0);
  double overlap = c.in(3).get_double(0), threshold = c.in(4).get_double(0);
  bool center = c.node.get_bool("center_box");
  std::vector<double> boxes = to_doubles(c.in(0)), scores = to_doubles(c.in(1));
  struct Box {
    double top, left, bottom, right;
    double area() const { return std::max(0.0, bottom - top) * std::max(0.0, right - left); }
  };
  auto box = [&](int64_t n, int64_t b) {
    const double* v = boxes.data() + (n * count + b) * 4;
    if (center) return Box{v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2};
    return Box{std::min(v[0], v[2]), std::min(v[1], v[3]), std::max(v[0], v[2]), std::max(v[1], v[3])};
  };
  auto iou = [](const Box& a, const Box& b) {
    Box both{std::max(a.top, b.top), std::max(a.left, b.left), std::min(a.bottom, b.bottom),
             std::min(a.right, b.right)};
    double shared = both.area(), all = a.area() + b.area() - shared;
    return shared <= 0 || all <= 0 ? 0 : shared / all;
  };
  std::vector<int64_t> out;
  for (int64_t n = 0; n < images; ++n)
    for (int64_t k = 0; k < classes; ++k) {
      const double* score = scores.data() + (n * classes + k) * count;
      std::vector<int64_t> order, kept;
      for (int64_t b = 0; b < count; ++b)
        if (score[b] > threshold) order.push_back(b);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score[a] > score[b]; });
      for (int64_t b : order) {
        if (static_cast<int64_t>(kept.size()) >= limit) break;
        bool free = std::none_of(kept.begin(), kept.end(),
                                 [&](int64_t other) { return iou(box(n, other), box(n, b)) > overlap; });
        if (!free) continue;
        kept.push_back(b);
        out.insert(out.end(), {n, k, b});
      }
    }
  c.out(0, from_ints(DType::i64, {static_cast<int64_t>(out.size() / 3), 3}, out));
}

}  // namespace pelton::ir
