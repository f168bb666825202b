// SPDX-License-Identifier: Apache-2.0
// max_pool_backward and avg_pool_backward for plain data and channels last: one task takes a block of
// channels of an image, so that no two write one element.
#include <cstring>

#include "backend/conv_window.h"
#include "backend/cpu/implementations.h"
#include "backend/cpu/support.h"
#include "base/cat.h"
#include "ir/op.h"

namespace pelton::backend::cpu {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Node& n = graph[node];
  const ir::Type &g = graph.type(n.inputs[0]), &x = graph.type(n.outputs[0]);
  if (g.dtype != DType::f32 && g.dtype != DType::f64) return cat("needs f32 or f64, got ", name(g.dtype));
  if (g.rank() > 5) return cat("takes up to 3 spatial dims, not ", g.rank() - 2);
  for (const ir::Layout& l : {g.layout, x.layout, graph.type(n.inputs.back()).layout})
    if (l.kind == ir::Layout::Kind::blocked) return cat("does not take layout ", l.str());
  if (g.layout != x.layout || graph.type(n.inputs.back()).layout != x.layout) return "needs one layout";
  return {};
}

constexpr int64_t kBlock = 16;

// Three spatial axes, the first ones of size 1 where there are fewer.
struct Plan {
  int64_t images = 0, channels = 0, size[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1},
          stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, low[3] = {}, high[3] = {};
  bool last = false, max = false, count_padding = false;
  int64_t pixels() const { return size[0] * size[1] * size[2]; }
  int64_t places() const { return out[0] * out[1] * out[2]; }
};

Plan plan_of(const Instance& instance) {
  const ir::Node& n = instance.node();
  const Dims &x = instance.outputs[0].dims, &g = instance.inputs[0].dims;
  Plan p;
  p.max = n.is("max_pool_backward");
  p.count_padding = !p.max && n.get_bool("count_padding");
  p.last = !instance.outputs[0].layout.is_plain();
  p.images = x[0];
  p.channels = x[1];
  const size_t spatial = x.size() - 2;
  const ConvWindow w = pool_window(n, instance, spatial);
  for (size_t d = 0; d < spatial; ++d) {
    const size_t to = 3 - spatial + d;
    p.size[to] = x[d + 2];
    p.out[to] = g[d + 2];
    p.kernel[to] = w.kernel[d];
    p.stride[to] = w.strides[d];
    p.dilation[to] = w.dilations[d];
    p.low[to] = w.low[d];
    p.high[to] = w.high[d];
  }
  return p;
}

// Taps of window o along axis d that lie inside: [from, to); `padded`: those inside the padded input.
struct Taps {
  int64_t start, from, to, padded;
};
Taps taps(const Plan& p, int d, int64_t o) {
  Taps t{o * p.stride[d] - p.low[d], 0, p.kernel[d], 0};
  while (t.from < t.to && t.start + t.from * p.dilation[d] < 0) ++t.from;
  while (t.to > t.from && t.start + (t.to - 1) * p.dilation[d] >= p.size[d]) --t.to;
  while (t.padded < p.kernel[d] && t.start + t.padded * p.dilation[d] < p.size[d] + p.high[d]) ++t.padded;
  return t;
}

// The channels of one block, `width` of them. Neighbouring channels lie 1 apart in blocks of more than one;
// pixels lie `pixel` apart.
template <class T, int64_t width>
void block(const Plan& p, const T* g, const T* x, T* dx, int64_t pixel) {
  for (int64_t s = 0; s < p.pixels(); ++s)
    for (int64_t c = 0; c < width; ++c) dx[s * pixel + c] = 0;
  T best[width] = {};
  int32_t at[width];  // pixels of an image
  for (int64_t a = 0; a < p.out[0]; ++a) {
    const Taps ta = taps(p, 0, a);
    for (int64_t b = 0; b < p.out[1]; ++b) {
      const Taps tb = taps(p, 1, b);
      for (int64_t e = 0; e < p.out[2]; ++e, g += pixel) {
        const Taps te = taps(p, 2, e);
        auto each = [&](auto f) {
          for (int64_t i = ta.from; i < ta.to; ++i)
            for (int64_t j = tb.from; j < tb.to; ++j)
              for (int64_t k = te.from; k < te.to; ++k)
                f(((ta.start + i * p.dilation[0]) * p.size[1] + tb.start + j * p.dilation[1]) * p.size[2] +
                  te.start + k * p.dilation[2]);
        };
        if (p.max) {
          for (int64_t c = 0; c < width; ++c) at[c] = -1;
          each([&](int64_t tap) {
            const T* from = x + tap * pixel;
            for (int64_t c = 0; c < width; ++c) {
              const T v = from[c];
              const bool takes = (at[c] < 0) | (v > best[c]) | ((v != v) & (best[c] == best[c]));
              best[c] = takes ? v : best[c];
              at[c] = takes ? static_cast<int32_t>(tap) : at[c];
            }
          });
          if (at[0] < 0) continue;
          for (int64_t c = 0; c < width; ++c) dx[at[c] * pixel + c] += g[c];
        } else {
          const int64_t inside = (ta.to - ta.from) * (tb.to - tb.from) * (te.to - te.from);
          const T divisor = static_cast<T>(p.count_padding ? ta.padded * tb.padded * te.padded : inside);
          each([&](int64_t tap) {
            for (int64_t c = 0; c < width; ++c) dx[tap * pixel + c] += g[c] / divisor;
          });
        }
      }
    }
  }
}

template <class T>
std::unique_ptr<Kernel> prepare_as(const Plan& p) {
  const int64_t width = p.last ? kBlock : 1, blocks = (p.channels + width - 1) / width;
  const int64_t work = (p.places() * p.kernel[0] * p.kernel[1] * p.kernel[2] + p.pixels()) * width;
  return make_kernel([=](const RunArgs& args) {
    const T *g = static_cast<const T*>(args.in[0]), *x = p.max ? static_cast<const T*>(args.in[1]) : g;
    T* dx = static_cast<T*>(args.out[0]);
    parallel_for(0, p.images * blocks, grain_for(p.images * blocks, work), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i / blocks, first = i % blocks * width,
                      last = std::min(first + width, p.channels);
        // Offset of channel c in images of `places` pixels.
        auto start = [&](int64_t c, int64_t places) {
          return image * p.channels * places + (p.last ? c : c * places);
        };
        const int64_t pixel = p.last ? p.channels : 1;
        if (last - first == kBlock)
          block<T, kBlock>(p, g + start(first, p.places()), x + start(first, p.pixels()),
                           dx + start(first, p.pixels()), pixel);
        else
          for (int64_t c = first; c < last; ++c)
            block<T, 1>(p, g + start(c, p.places()), x + start(c, p.pixels()), dx + start(c, p.pixels()),
                        pixel);
      }
    });
  });
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const Plan p = plan_of(instance);
  return instance.inputs[0].dtype == DType::f64 ? prepare_as<double>(p) : prepare_as<float>(p);
}

}  // namespace

void add_pool_backward(Registry& registry) {
  registry.add({"cpu.pool_backward", {"max_pool_backward", "avg_pool_backward"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
