// SPDX-License-Identifier: Apache-2.0
// batch_norm_train and batch_norm_backward in f32, two passes over the data each, on plain data (a task is a
// channel) and channels last (a task is a run of pixels; their sums are added in order).
#include <cmath>
#include <cstring>

#include "backend/cpu/implementations.h"
#include "backend/cpu/own/norm_steps.h"
#include "backend/cpu/support.h"
#include "base/cat.h"
#include "ir/op.h"

namespace pelton::backend::cpu {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Node& n = graph[node];
  for (const std::vector<ir::ValueId>* side : {&n.inputs, &n.outputs})
    for (ir::ValueId v : *side)
      if (graph.type(v).dtype != DType::f32) return cat("needs f32, got ", name(graph.type(v).dtype));
  const ir::Type &x = graph.type(n.inputs[0]), &y = graph.type(n.outputs[0]);
  if (x.rank() < 2) return "needs [N, C, ...]";
  if (x.layout.kind == ir::Layout::Kind::blocked || x.layout != y.layout)
    return "needs one plain or channels-last layout";
  if (n.is("batch_norm_backward") && graph.type(n.inputs[1]).layout != x.layout) return "needs one layout";
  return {};
}

// x as `images` of `channels` by `pixels`.
struct Geometry {
  int64_t images = 0, channels = 0, pixels = 0, chunk = 0, chunks = 0;
  bool last = false;
  double count() const { return static_cast<double>(images * pixels); }
  int64_t rows() const { return images * pixels; }
};
Geometry geometry(const TensorSpec& x) {
  Geometry g;
  g.images = x.dims[0];
  g.channels = x.dims[1];
  g.pixels = element_count(Dims(x.dims.begin() + 2, x.dims.end()));
  g.last = !x.layout.is_plain() || g.pixels == 1;  // without pixels both layouts are one
  g.chunk = std::max<int64_t>(64, grain_for(g.rows(), g.channels * 2));
  g.chunk = std::max(g.chunk, (g.rows() + 63) / 64);
  g.chunks = (g.rows() + g.chunk - 1) / g.chunk;
  return g;
}

// Scratch: arrays of C floats, then the partial sums of the chunks.
struct Scratch {
  float* base;
  int64_t channels;
  float* array(int64_t i) const { return base + i * channels; }
  float* partial(int64_t chunk, int64_t which, int64_t arrays) const {
    return array(arrays + chunk * 2 + which);
  }
};
int64_t scratch_bytes(const Geometry& g, int64_t arrays) {
  return align64((arrays + (g.last ? 2 * g.chunks : 0)) * g.channels * 4);
}

// Calls f(c, sum, second sum) for each channel from the chunks' sums that `rows` makes.
template <class Rows, class Finish>
void over_chunks(const Geometry& g, const Scratch& s, int64_t arrays, Rows rows, Finish finish) {
  parallel_for(0, g.chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      std::memset(s.partial(k, 0, arrays), 0, static_cast<size_t>(g.channels) * 8);
      const int64_t first = k * g.chunk;
      rows(first, std::min(g.chunk, g.rows() - first), s.partial(k, 0, arrays), s.partial(k, 1, arrays));
    }
  });
  for (int64_t c = 0; c < g.channels; ++c) {
    double sum = 0, second = 0;
    for (int64_t k = 0; k < g.chunks; ++k) {
      sum += static_cast<double>(s.partial(k, 0, arrays)[c]);
      second += static_cast<double>(s.partial(k, 1, arrays)[c]);
    }
    finish(c, sum, second);
  }
}
template <class F>
void over_rows(const Geometry& g, F f) {
  parallel_for(0, g.chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) f(k * g.chunk, std::min(g.chunk, g.rows() - k * g.chunk));
  });
}
template <class F>
void over_channels(const Geometry& g, F f) {
  parallel_for(0, g.channels, grain_for(g.channels, g.rows() * 2), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) f(c);
  });
}

// Inputs x, scale, bias, mean, var; results y, new mean, new var, [mean], [rstd].
std::unique_ptr<Kernel> prepare_train(const Instance& instance, const device::Target& target) {
  const Geometry g = geometry(instance.inputs[0]);
  const ir::Node& n = instance.node();
  const double eps = n.get_real("eps"), keep = n.get_real("momentum");
  const NormSteps& steps = norm_steps(target.isa);
  const size_t results = instance.outputs.size();
  constexpr int64_t kArrays = 3;
  return make_kernel(
      [=, &steps](const RunArgs& args) {
        auto in = [&](size_t i) { return static_cast<const float*>(args.in[i]); };
        auto out = [&](size_t i) { return i < results ? static_cast<float*>(args.out[i]) : nullptr; };
        const float* x = in(0);
        const Scratch s{static_cast<float*>(args.scratch), g.channels};
        float *mean = s.array(0), *shift = s.array(1), *factor = s.array(2);
        // From the sums of x - shift and of its square.
        auto finish = [&](int64_t c, double sum, double second) {
          const double m = sum / g.count(), variance = std::max(0.0, second / g.count() - m * m);
          const double batch_mean = static_cast<double>(shift[c]) + m, rstd = 1 / std::sqrt(variance + eps);
          mean[c] = static_cast<float>(batch_mean);
          factor[c] = static_cast<float>(rstd * static_cast<double>(in(1)[c]));
          if (out(1))
            out(1)[c] = static_cast<float>(static_cast<double>(in(3)[c]) * keep + batch_mean * (1 - keep));
          if (out(2))
            out(2)[c] = static_cast<float>(static_cast<double>(in(4)[c]) * keep + variance * (1 - keep));
          if (out(3)) out(3)[c] = mean[c];
          if (out(4)) out(4)[c] = static_cast<float>(rstd);
        };
        if (g.last) {
          if (g.rows() > 0) std::memcpy(shift, x, static_cast<size_t>(g.channels) * 4);
          over_chunks(
              g, s, kArrays,
              [&](int64_t first, int64_t rows, float* a, float* b) {
                steps.row_sums(x + first * g.channels, rows, g.channels, shift, a, b);
              },
              finish);
          over_rows(g, [&](int64_t first, int64_t rows) {
            const int64_t at = first * g.channels;
            steps.row_forward(x + at, out(0) + at, rows, g.channels, mean, factor, in(2));
          });
          return;
        }
        over_channels(g, [&](int64_t c) {
          double sums[2] = {};
          shift[c] = g.rows() > 0 ? x[c * g.pixels] : 0.0f;
          for (int64_t i = 0; i < g.images; ++i)
            steps.plane_sums(x + (i * g.channels + c) * g.pixels, shift[c], g.pixels, sums);
          finish(c, sums[0], sums[1]);
          for (int64_t i = 0; i < g.images; ++i) {
            const int64_t at = (i * g.channels + c) * g.pixels;
            steps.plane_forward(x + at, out(0) + at, g.pixels, mean[c], factor[c], in(2)[c]);
          }
        });
      },
      scratch_bytes(g, kArrays));
}

// Inputs g, x, scale, mean, rstd; results dx, [dscale], [dbias].
std::unique_ptr<Kernel> prepare_backward(const Instance& instance, const device::Target& target) {
  const Geometry geo = geometry(instance.inputs[0]);
  const NormSteps& steps = norm_steps(target.isa);
  const size_t results = instance.outputs.size();
  constexpr int64_t kArrays = 3;
  return make_kernel(
      [=, &steps](const RunArgs& args) {
        auto in = [&](size_t i) { return static_cast<const float*>(args.in[i]); };
        auto out = [&](size_t i) { return i < results ? static_cast<float*>(args.out[i]) : nullptr; };
        const float *g = in(0), *x = in(1), *mean = in(3);
        const Scratch s{static_cast<float*>(args.scratch), geo.channels};
        float *u = s.array(0), *v = s.array(1), *a = s.array(2);
        auto finish = [&](int64_t c, double sum, double product) {
          const double rstd = static_cast<double>(in(4)[c]);
          u[c] = static_cast<float>(sum / geo.count());
          v[c] = static_cast<float>(product / geo.count() * rstd * rstd);
          a[c] = static_cast<float>(rstd * static_cast<double>(in(2)[c]));
          if (out(1)) out(1)[c] = static_cast<float>(product * rstd);
          if (out(2)) out(2)[c] = static_cast<float>(sum);
        };
        if (geo.last) {
          over_chunks(
              geo, s, kArrays,
              [&](int64_t first, int64_t rows, float* sums, float* products) {
                const int64_t at = first * geo.channels;
                steps.row_backward_sums(g + at, x + at, rows, geo.channels, mean, sums, products);
              },
              finish);
          over_rows(geo, [&](int64_t first, int64_t rows) {
            const int64_t at = first * geo.channels;
            steps.row_backward(g + at, x + at, out(0) + at, rows, geo.channels, mean, u, v, a);
          });
          return;
        }
        over_channels(geo, [&](int64_t c) {
          double sums[2] = {};
          for (int64_t i = 0; i < geo.images; ++i) {
            const int64_t at = (i * geo.channels + c) * geo.pixels;
            steps.plane_backward_sums(g + at, x + at, mean[c], geo.pixels, sums);
          }
          finish(c, sums[0], sums[1]);
          for (int64_t i = 0; i < geo.images; ++i) {
            const int64_t at = (i * geo.channels + c) * geo.pixels;
            steps.plane_backward(g + at, x + at, out(0) + at, geo.pixels, mean[c], u[c], v[c], a[c]);
          }
        });
      },
      scratch_bytes(geo, kArrays));
}

}  // namespace

void add_batch_norm(Registry& registry) {
  registry.add({"cpu.batch_norm_train", {"batch_norm_train"}, refuse, prepare_train});
  registry.add({"cpu.batch_norm_backward", {"batch_norm_backward"}, refuse, prepare_backward});
}

}  // namespace pelton::backend::cpu
