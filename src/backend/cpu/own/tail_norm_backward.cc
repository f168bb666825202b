// SPDX-License-Identifier: Apache-2.0
// layer_norm_backward and rms_norm_backward in f32: a task takes a run of rows and adds up its share of the
// parameters' gradients, which are then summed in order.
#include <cstring>

#include "backend/cpu/implementations.h"
#include "backend/cpu/own/norm_steps.h"
#include "backend/cpu/support.h"
#include "base/cat.h"
#include "ir/op.h"
#include "ir/ops/composite.h"

namespace pelton::backend::cpu {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  if (std::string why = refuse_layouts(graph, node); !why.empty()) return why;
  const ir::Node& n = graph[node];
  for (ir::ValueId v : n.inputs)
    if (v && graph.type(v).dtype != DType::f32) return cat("needs f32, got ", name(graph.type(v).dtype));
  const size_t scale = n.is("layer_norm_backward") ? 4 : 3;
  if (scale >= n.inputs.size() || !n.inputs[scale]) return {};
  // One scale an element of the normalised shape.
  const Shape &x = graph.type(n.inputs[1]).shape, &s = graph.type(n.inputs[scale]).shape;
  const int64_t axis = ir::wrap_axis(n.get_int("axis"), static_cast<int64_t>(x.size()));
  if (Shape(x.begin() + axis, x.end()) != s)
    return cat("needs a scale of the normalised shape, got ", cat(s));
  return {};
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  const ir::Node& n = instance.node();
  const bool centred = n.is("layer_norm_backward");
  const Dims& dims = instance.inputs[1].dims;
  const int64_t axis = ir::wrap_axis(n.get_int("axis"), static_cast<int64_t>(dims.size()));
  const int64_t rows = element_count(Dims(dims.begin(), dims.begin() + axis)),
                width = element_count(Dims(dims.begin() + axis, dims.end()));
  const size_t results = instance.outputs.size(), rstd_at = centred ? 3 : 2;
  const bool parameters = results > 1, scaled = instance.has(rstd_at + 1);
  const int64_t chunk = std::max<int64_t>(grain_for(rows, width * 3), (rows + 31) / 32);
  const int64_t chunks = chunk ? (rows + chunk - 1) / chunk : 0, arrays = parameters ? (centred ? 2 : 1) : 0;
  const NormSteps& steps = norm_steps(target.isa);
  auto run = [=, &steps](const RunArgs& args) {
    auto in = [&](size_t i) { return static_cast<const float*>(args.in[i]); };
    const float *g = in(0), *x = in(1), *scale = scaled ? in(rstd_at + 1) : nullptr;
    float *dx = static_cast<float*>(args.out[0]), *partial = static_cast<float*>(args.scratch);
    parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        float* dscale = parameters ? partial + k * arrays * width : nullptr;
        float* dbias = arrays == 2 ? dscale + width : nullptr;
        if (parameters) std::memset(dscale, 0, static_cast<size_t>(arrays * width) * 4);
        for (int64_t r = k * chunk; r < std::min(rows, (k + 1) * chunk); ++r) {
          const float mean = centred ? in(2)[r] : 0.0f, rstd = in(rstd_at)[r];
          float sums[2];
          steps.tail_sums(g + r * width, x + r * width, scale, mean, width, sums);
          const float u = centred ? sums[0] / static_cast<float>(width) : 0.0f,
                      v = sums[1] / static_cast<float>(width) * rstd * rstd;
          steps.tail_backward(g + r * width, x + r * width, scale, dx + r * width, width, mean, u, v, rstd,
                              dscale, dbias);
        }
      }
    });
    for (int64_t a = 0; a < arrays; ++a) {
      auto* to = static_cast<float*>(args.out[static_cast<size_t>(a) + 1]);
      if (!to) continue;
      for (int64_t i = 0; i < width; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < chunks; ++k)
          sum += static_cast<double>(partial[(k * arrays + a) * width + i]);
        to[i] = static_cast<float>(sum);
      }
    }
  };
  return make_kernel(run, align64(chunks * arrays * width * 4));
}

}  // namespace

void add_tail_norm_backward(Registry& registry) {
  registry.add({"cpu.norm_backward", {"layer_norm_backward", "rms_norm_backward"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
