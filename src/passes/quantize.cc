// SPDX-License-Identifier: Apache-2.0
#include "passes/quantize.h"

#include <algorithm>
#include <cmath>

#include "passes/rewrite.h"
#include "passes/weight_names.h"

namespace pelton::passes {

using namespace ir;

namespace {

struct Parameters {
  DType type = DType::i8;
  float scale = 1;
  int64_t zero = 0;
};

Parameters parameters_of(const QuantizeRange& r) {
  Parameters p;
  const double reach = std::max(-r.low, r.high);
  if (-r.low <= r.high / 4) {
    p.type = DType::u8;
    p.scale = static_cast<float>((r.high - r.low) / 255);
    if (p.scale > 0)
      p.zero = std::clamp<int64_t>(std::llround(-r.low / static_cast<double>(p.scale)), 0, 255);
  } else {
    p.scale = static_cast<float>(reach / 127);
  }
  if (!(p.scale > 0)) p.scale = 1;  // only zeros were seen
  return p;
}

// i8 weights and their scales, one for each index of `axis`.
std::pair<Tensor, Tensor> quantized_weights(const Tensor& w, size_t axis) {
  const int64_t channels = w.dims()[axis];
  int64_t inner = 1;
  for (size_t d = axis + 1; d < w.dims().size(); ++d) inner *= w.dims()[d];
  std::vector<double> reach(static_cast<size_t>(channels), 0);
  for (int64_t i = 0; i < w.count(); ++i) {
    double& r = reach[static_cast<size_t>(i / inner % channels)];
    r = std::max(r, std::fabs(w.get_double(i)));
  }
  Tensor scales = Tensor::zeros(DType::f32, {channels}), q = Tensor::zeros(DType::i8, w.dims());
  for (int64_t c = 0; c < channels; ++c) {
    const double r = reach[static_cast<size_t>(c)];
    scales.set_double(c, r > 0 ? r / 127 : 1);
  }
  for (int64_t i = 0; i < w.count(); ++i) {
    const double v = std::nearbyint(w.get_double(i) / scales.get_double(i / inner % channels));
    q.set_int(i, std::clamp<int64_t>(static_cast<int64_t>(v), -127, 127));
  }
  return {std::move(q), std::move(scales)};
}

}  // namespace

std::vector<NodeId> quantizable(const Graph& graph) {
  std::vector<NodeId> out;
  for (NodeId id : graph.order()) {
    const Node& n = graph[id];
    if (!n.is("conv") && !n.is("matmul")) continue;
    const Tensor* w = graph.constant(input(graph, id, 1));
    if (!w || w->dtype() != DType::f32 || graph.constant(n.inputs[0]) || n.inputs.size() > 3) continue;
    if (n.is("matmul") && (w->rank() != 2 || graph.type(n.inputs[0]).rank() < 2 || n.inputs.size() > 2))
      continue;
    out.push_back(id);
  }
  return out;
}

bool quantize(Graph& graph, const std::map<uint32_t, QuantizeRange>& ranges, const Context& context) {
  std::map<std::tuple<uint32_t, float, int64_t, DType>, ValueId> made;  // by value and parameters
  bool changed = false;
  for (NodeId id : quantizable(graph)) {
    const auto range = ranges.find(id.index);
    if (range == ranges.end()) continue;
    const ValueId x = input(graph, id, 0);
    const Parameters p = parameters_of(range->second);
    ValueId& rounded = made[{x.index, p.scale, p.zero, p.type}];
    Builder b(graph, id);
    b.set_name(graph[id].name);
    if (!rounded) {
      const ValueId scale = b.constant(Tensor::scalar<float>(p.scale));
      std::vector<ValueId> parameters = {x, scale};
      if (p.zero) parameters.push_back(b.constant(from_ints(p.type, {}, {p.zero})));
      const ValueId q = b.op("quantize", parameters, {{"to", p.type}});
      parameters[0] = q;
      rounded = b.op("dequantize", parameters, {{"to", DType::f32}});
    }
    const bool rows = graph[id].is("conv") || graph[id].get_bool("transpose_b");
    const auto axis = static_cast<size_t>(rows ? 0 : 1);
    auto [weights, scales] = quantized_weights(*graph.constant(input(graph, id, 1)), axis);
    const ValueId w = b.op("dequantize", {b.constant(weights), b.constant(scales)},
                           {{"axis", static_cast<int64_t>(axis)}, {"to", DType::f32}});
    forget_names(graph, input(graph, id, 1));
    graph.set_input(id, 0, rounded);
    graph.set_input(id, 1, w);
    context.count("quantize/contraction");
    changed = true;
  }
  if (changed) remove_dead(graph);
  return changed;
}

}  // namespace pelton::passes
