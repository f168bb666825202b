// SPDX-License-Identifier: Apache-2.0
// max_pool that also yields indices, or whose windows may lie in the pads: plain tensors, any number of
// spatial axes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/conv_window.h"
#include "backend/cpu/own/implementations.h"
#include "backend/cpu/support.h"
#include "ir/op.h"

namespace pelton::backend::cpu {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  if (const DType t = input_dtype(graph, node, 0); t != DType::f32 && t != DType::i8 && t != DType::u8)
    return cat("needs f32, i8 or u8, got ", name(t));
  if (graph.type(graph[node].inputs[0]).rank() > 5) return "takes up to 3 spatial dims";
  return refuse_layouts(graph, node);
}

// Positions of the input, the first and one behind the last.
struct Span {
  int64_t first, end;
};

// All in three spatial axes, the missing ones of size 1.
struct Window {
  int64_t size[3], out[3], kernel[3], stride[3], dilation[3], low[3];

  // What window o covers of the input; most of a kernel may lie in the pads.
  Span inside(int axis, int64_t o) const {
    const int64_t start = o * stride[axis] - low[axis], step = dilation[axis];
    const int64_t skipped = start < 0 ? (-start - 1) / step + 1 : 0;
    if (skipped >= kernel[axis] || start >= size[axis]) return {0, 0};
    const int64_t taps = std::min(kernel[axis], (size[axis] - 1 - start) / step + 1);
    // Below the end of the input, so that adding a step never overflows by much.
    return {start + skipped * step, taps <= skipped ? 0 : start + (taps - 1) * step + 1};
  }
};

template <class T>
void plane(const Window& w, const T* x, T* y, int64_t* indices, int64_t first, bool row_major) {
  constexpr T kLowest =
      std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  int64_t o = 0;
  for (int64_t a = 0; a < w.out[0]; ++a)
    for (int64_t b = 0; b < w.out[1]; ++b)
      for (int64_t c = 0; c < w.out[2]; ++c, ++o) {
        int64_t best = -1, at_best[3] = {};
        const Span rows = w.inside(0, a), columns = w.inside(1, b), places = w.inside(2, c);
        for (int64_t p = rows.first; p < rows.end; p += w.dilation[0]) {
          for (int64_t q = columns.first; q < columns.end; q += w.dilation[1]) {
            for (int64_t r = places.first; r < places.end; r += w.dilation[2]) {
              const int64_t at = (p * w.size[1] + q) * w.size[2] + r;
              // NaN wins; the first of equal values gives the index.
              if (best >= 0 && !(x[at] > x[best]) && !(x[at] != x[at] && x[best] == x[best])) continue;
              best = at;
              at_best[0] = p, at_best[1] = q, at_best[2] = r;
            }
          }
        }
        y[o] = best < 0 ? kLowest : x[best];
        if (!indices) continue;
        const int64_t column_major = at_best[0] + w.size[0] * (at_best[1] + w.size[1] * at_best[2]);
        indices[o] = best < 0 ? -1 : first + (row_major ? best : column_major);
      }
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &y = instance.outputs[0];
  const ir::Node& n = instance.node();
  const size_t spatial = x.dims.size() - 2;
  const ConvWindow given = pool_window(n, instance, spatial);
  Window w{{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}};
  for (size_t d = 0; d < spatial; ++d) {
    const size_t to = 3 - spatial + d;
    w.size[to] = x.dims[d + 2];
    w.out[to] = y.dims[d + 2];
    w.kernel[to] = given.kernel[d];
    w.stride[to] = given.strides[d];
    w.dilation[to] = given.dilations[d];
    w.low[to] = given.low[d];
  }
  const int64_t planes = x.dims[0] * x.dims[1], pixels = w.size[0] * w.size[1] * w.size[2];
  const int64_t results = w.out[0] * w.out[1] * w.out[2];
  const bool wants_indices = n.outputs.size() > 1, row_major = n.get_bool("row_major");
  const DType type = x.dtype;
  int64_t work = results * 2;  // a window covers no more than the input
  for (int d = 0; d < 3; ++d) work *= std::min(w.kernel[d], w.size[d]);
  return make_kernel([=](const RunArgs& args) {
    auto run = [&](auto one) {
      using T = decltype(one);
      parallel_for(0, planes, grain_for(planes, work), [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p)
          plane(w, static_cast<const T*>(args.in[0]) + p * pixels, static_cast<T*>(args.out[0]) + p * results,
                wants_indices ? static_cast<int64_t*>(args.out[1]) + p * results : nullptr, p * pixels,
                row_major);
      });
    };
    if (type == DType::f32)
      run(float{});
    else if (type == DType::i8)
      run(int8_t{});
    else
      run(uint8_t{});
  });
}

}  // namespace

void add_max_pool(Registry& registry) {
  registry.add({"cpu.max_pool", {"max_pool"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
