// SPDX-License-Identifier: Apache-2.0
// resample: nearest moves bytes through one index table an axis; the blending modes run one pass an axis,
// with taps computed when the kernel is prepared, in f32.
#include <cstring>

#include "backend/cpu/implementations.h"
#include "backend/cpu/move/copy.h"
#include "backend/cpu/tile/lanes.h"
#include "ir/op.h"
#include "ir/ops/resample.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/own/resample.cc"
#include "backend/cpu/simd/targets.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pelton::backend::cpu::HWY_NAMESPACE {

// out[i] = sum over taps of weight * row[i]; rows lie at from + index * n.
void blend(const float* from, const int64_t* index, const float* weight, int64_t taps, float* out,
           int64_t n) {
  if (taps == 2) {
    const float *a = from + index[0] * n, *b = from + index[1] * n;
    const float u = weight[0], v = weight[1];
    for (int64_t i = 0; i < n; ++i) out[i] = u * a[i] + v * b[i];
    return;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = 0;
  for (int64_t t = 0; t < taps; ++t) {
    const float* row = from + index[t] * n;
    const float w = weight[t];
    for (int64_t i = 0; i < n; ++i) out[i] += w * row[i];
  }
}

}  // namespace pelton::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pelton::backend::cpu {
namespace {

struct Pass {
  int64_t outer, from, to, inner;
  std::vector<int64_t> first;  // of the taps of each output position; one more than positions
  std::vector<int64_t> index;
  std::vector<float> weight;
};

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Node& n = graph[node];
  const ir::Type &x = graph.type(n.inputs[0]), &y = graph.type(n.outputs[0]);
  if (x.layout.kind == ir::Layout::Kind::blocked || !(x.layout == y.layout))
    return "needs one layout, plain or channels last";
  if (x.dtype == DType::string || is_sub_byte(x.dtype)) return cat("does not take ", name(x.dtype));
  if (n.get_text("mode") != "nearest" && !is_real(x.dtype))
    return cat("blends f32, f16 or bf16, got ", name(x.dtype));
  if (n.get_text("coordinates") == "tf_crop_and_resize") return "does not crop";
  return {};
}

// Taps along every resized axis, in physical order.
std::vector<Pass> passes_of(const Instance& instance, Dims& from, const Dims& to) {
  const ir::Node& n = instance.node();
  const ir::Ints& axes = n.get_ints("axes");
  const ir::Floats& scales = n.get_floats("scales");
  const ir::ResampleOptions options = ir::resample_options(n);
  const Dims& x = instance.inputs[0].dims;
  std::vector<Pass> passes;
  for (size_t k = 0; k < axes.size(); ++k) {
    int64_t a = axes[k] < 0 ? axes[k] + static_cast<int64_t>(x.size()) : axes[k];
    ir::ResampleAxis axis;
    axis.from = x[static_cast<size_t>(a)];
    axis.to = instance.outputs[0].dims[static_cast<size_t>(a)];
    if (axis.from == 0 && axis.to > 0)
      fail(ErrorCode::bad_shape, cat("nothing to sample along axis ", a),
           instance.graph.describe(instance.id));
    axis.scale_given = !scales.empty();
    axis.scale = axis.scale_given ? scales[k] : static_cast<double>(axis.to) / static_cast<double>(axis.from);
    Pass p;
    for (int64_t o = 0; o < axis.to; ++o) {
      p.first.push_back(static_cast<int64_t>(p.index.size()));
      for (const ir::Tap& t : ir::resample_taps(axis, options, o)) {
        p.index.push_back(t.index);
        p.weight.push_back(static_cast<float>(t.weight));
      }
    }
    p.first.push_back(static_cast<int64_t>(p.index.size()));
    physical_dims(x, instance.inputs[0].layout, &a);
    const auto at = static_cast<size_t>(a);
    p.from = from[at];
    p.to = to[at];
    p.outer = element_count(Dims(from.begin(), from.begin() + a));
    p.inner = element_count(Dims(from.begin() + a + 1, from.end()));
    from[at] = to[at];
    bool same = p.from == p.to;
    for (int64_t o = 0; same && o < p.to; ++o)
      same = p.first[static_cast<size_t>(o) + 1] - p.first[static_cast<size_t>(o)] == 1 &&
             p.index[static_cast<size_t>(p.first[static_cast<size_t>(o)])] == o &&
             p.weight[static_cast<size_t>(p.first[static_cast<size_t>(o)])] == 1.0f;
    if (!same) passes.push_back(std::move(p));
  }
  return passes;
}

void run_nearest(const Pass& p, const std::byte* from, std::byte* to, int64_t width) {
  const int64_t row = p.inner * width;
  parallel_for(0, p.outer * p.to, grain_for(p.outer * p.to, row / 4 + 2), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::byte* source = from + (i / p.to * p.from + p.index[static_cast<size_t>(i % p.to)]) * row;
      if (row == 4)
        std::memcpy(to + i * 4, source, 4);
      else
        std::memcpy(to + i * row, source, static_cast<size_t>(row));
    }
  });
}

using BlendFunction = void (*)(const float*, const int64_t*, const float*, int64_t, float*, int64_t);

void run_blend(const Pass& p, const float* from, float* to, BlendFunction blend) {
  parallel_for(0, p.outer * p.to, grain_for(p.outer * p.to, p.inner * 3 + 4),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const auto o = static_cast<size_t>(i % p.to);
                   const int64_t first = p.first[o], taps = p.first[o + 1] - first;
                   const float* source = from + i / p.to * p.from * p.inner;
                   const int64_t* index = p.index.data() + first;
                   const float* weight = p.weight.data() + first;
                   if (p.inner > 1) {
                     blend(source, index, weight, taps, to + i * p.inner, p.inner);
                     continue;
                   }
                   float sum = 0;
                   for (int64_t t = 0; t < taps; ++t) sum += weight[t] * source[index[t]];
                   to[i] = sum;
                 }
               });
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const TensorSpec &x = instance.inputs[0], &y = instance.outputs[0];
  if (y.count() == 0) return make_kernel([](const RunArgs&) {});
  Dims dims = physical_dims(x.dims, x.layout);
  std::vector<Pass> passes = passes_of(instance, dims, physical_dims(y.dims, y.layout));
  // Two buffers of the largest intermediate, which passes read and write in turn.
  const bool nearest = instance.node().get_text("mode") == "nearest";
  const int64_t width = nearest ? bits(x.dtype) / 8 : 4;
  int64_t largest = std::max(x.count(), y.count());
  for (const Pass& p : passes) largest = std::max(largest, p.outer * p.to * p.inner);
  const int64_t buffer = align64(largest * width), count = x.count();
  if (nearest)
    return make_kernel(
        [=, passes = std::move(passes)](const RunArgs& args) {
          const auto* at = static_cast<const std::byte*>(args.in[0]);
          if (passes.empty()) std::memcpy(args.out[0], at, static_cast<size_t>(count * width));
          for (size_t i = 0; i < passes.size(); ++i) {
            std::byte* to = i + 1 == passes.size()
                                ? static_cast<std::byte*>(args.out[0])
                                : offset(args.scratch, static_cast<int64_t>(i % 2) * buffer);
            run_nearest(passes[i], at, to, width);
            at = to;
          }
        },
        2 * buffer);
  const LoadFunction load = load_function(x.dtype, target.isa);
  const StoreFunction store = store_function(y.dtype, target.isa);
  const BlendFunction blend = PELTON_SIMD_PICK(target.isa, blend);
  const bool direct = x.dtype == DType::f32;
  const int64_t results = y.count();
  return make_kernel(
      [=, passes = std::move(passes)](const RunArgs& args) {
        const auto* at = static_cast<const float*>(args.in[0]);
        auto scratch = [&](size_t k) {
          return reinterpret_cast<float*>(offset(args.scratch, static_cast<int64_t>(k % 3) * buffer));
        };
        if (!direct) {
          load(args.in[0], 1, scratch(2), count);
          at = scratch(2);
        }
        for (size_t i = 0; i < passes.size(); ++i) {
          float* to = direct && i + 1 == passes.size() ? static_cast<float*>(args.out[0]) : scratch(i % 2);
          run_blend(passes[i], at, to, blend);
          at = to;
        }
        if (!direct)
          store(at, args.out[0], 1, results);
        else if (passes.empty())
          std::memcpy(args.out[0], at, static_cast<size_t>(results) * 4);
      },
      3 * buffer);
}

}  // namespace

void add_resample(Registry& registry) {
  registry.add({"cpu.resample", {"resample"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
#endif
