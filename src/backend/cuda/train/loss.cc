// SPDX-License-Identifier: Apache-2.0
// cross_entropy and its gradient over rows of logits, alone or in a group of kind "cross_entropy" with casts
// of the logits and of their gradient, so that logits of 16 bits are never stored in f32.
#include <algorithm>

#include "backend/cuda/implementations.h"
#include "backend/cuda/own/cross_entropy.h"
#include "backend/cuda/own/host.h"
#include "device/fault.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

struct Parsed {
  std::string reason;
  const ir::Graph* graph = nullptr;  // that holds the node
  ir::NodeId main;
  std::vector<int> inputs;   // of the main node: index in the outer node's inputs, or -1
  std::vector<int> outputs;  // of the main node: index in the outer node's outputs, or -1
  const ir::Node& node() const { return (*graph)[main]; }
};

bool is_loss(const ir::Node& n) {
  return n.is("cross_entropy") || n.is("cross_entropy_backward");
}

Parsed parse(const ir::Graph& graph, ir::NodeId id) {
  Parsed p;
  const ir::Node& outer = graph[id];
  p.graph = outer.is("fused") ? &outer.get_graph("body") : &graph;
  p.main = outer.is("fused") ? ir::NodeId{} : id;
  size_t casts = 0;
  if (!p.main)
    for (ir::NodeId n : p.graph->order()) {
      const ir::Node& inner = (*p.graph)[n];
      casts += inner.is("cast");
      if (!is_loss(inner)) continue;
      if (p.main) p.reason = "holds two losses";
      p.main = n;
    }
  if (!p.main) {
    p.reason = "holds no loss";
    return p;
  }
  const ir::Node& main = p.node();
  const size_t logits = main.is("cross_entropy") ? 0 : 1;
  size_t seen = 1;
  auto position = [](const std::vector<ir::ValueId>& list, ir::ValueId v) {
    const auto at = std::find(list.begin(), list.end(), v);
    return at == list.end() ? -1 : static_cast<int>(at - list.begin());
  };
  auto through_cast = [&](ir::ValueId v) {
    const ir::NodeId from = (*p.graph)[v].producer;
    if (!outer.is("fused") || !from || !(*p.graph)[from].is("cast")) return v;
    ++seen;
    return (*p.graph)[from].inputs[0];
  };
  for (size_t i = 0; i < main.inputs.size(); ++i) {
    ir::ValueId v = main.inputs[i];
    if (!v) {
      p.inputs.push_back(-1);
      continue;
    }
    if (i == logits) v = through_cast(v);
    p.inputs.push_back(position(outer.is("fused") ? p.graph->inputs : outer.inputs, v));
    if (p.inputs.back() < 0) p.reason = cat("computes operand ", i, " of its loss");
  }
  for (ir::ValueId v : main.outputs) {
    int at = position(outer.is("fused") ? p.graph->outputs : outer.outputs, v);
    if (at < 0 && outer.is("fused"))
      for (const ir::Use& u : (*p.graph)[v].uses)
        if ((*p.graph)[u.user].is("cast")) {
          at = position(p.graph->outputs, (*p.graph)[u.user].outputs[0]);
          ++seen;
        }
    p.outputs.push_back(at);
  }
  if (outer.is("fused") && (seen != casts + 1 || p.graph->node_count() != seen))
    p.reason = "computes something beside the loss";
  return p;
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (graph[id].is("fused") && graph[id].get_text("kind") != "cross_entropy")
    return "is another kind of group";
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const Parsed p = parse(graph, id);
  if (!p.reason.empty()) return p.reason;
  const bool forward = p.node().is("cross_entropy");
  const size_t logits = forward ? 0 : 1;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    if (p.inputs[i] < 0) continue;
    const ir::Type& t = input_type(graph, id, static_cast<size_t>(p.inputs[i]));
    if (i == logits + 1) {
      if (t.dtype != DType::i64 && t.dtype != DType::i32) return cat("labels of ", name(t.dtype));
    } else if (!elem_of(t.dtype)) {
      return cat("needs f32, f16 or bf16, got ", name(t.dtype));
    }
    if (i == logits && t.rank() != 2) return "takes rows of classes, not classes on another axis";
    if (!forward && i == 3 && t.dtype != DType::f32) return "needs sums of f32";
  }
  for (ir::ValueId v : graph[id].outputs)
    if (!elem_of(graph.type(v).dtype)) return cat("does not yield ", name(graph.type(v).dtype));
  if (forward && p.outputs.size() > 1 && p.outputs[1] >= 0 &&
      output_type(graph, id, static_cast<size_t>(p.outputs[1])).dtype != DType::f32)
    return "yields sums of f32";
  return {};
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const Parsed p = parse(instance.graph, instance.id);
  PELTON_CHECK(p.reason.empty(), p.reason);
  const ir::Node& n = p.node();
  const bool forward = n.is("cross_entropy");
  const size_t logits = forward ? 0 : 1;
  auto spec = [&](size_t i) -> const TensorSpec& {
    return instance.inputs[static_cast<size_t>(p.inputs[i])];
  };
  CrossEntropy g;
  const TensorSpec& x = spec(logits);
  g.type = elem(x.dtype);
  g.rows = x.dims[0];
  g.classes = static_cast<int>(x.dims[1]);
  g.label64 = spec(logits + 1).dtype == DType::i64;
  g.ignore = n.get_int("ignore");
  const std::string& reduction = n.get_text("reduction");
  g.reduction = reduction == "none"  ? CrossEntropy::none
                : reduction == "sum" ? CrossEntropy::sum
                                     : CrossEntropy::mean;
  const size_t weights = forward ? 2 : 4;
  const int weight_input = p.inputs.size() > weights ? p.inputs[weights] : -1;
  if (weight_input >= 0) g.weight_type = elem(instance.inputs[static_cast<size_t>(weight_input)].dtype);
  const auto main_out = static_cast<size_t>(std::max(0, p.outputs[0]));
  g.loss_type = elem(forward ? instance.outputs[main_out].dtype : spec(0).dtype);
  if (!forward) g.dx_type = elem(instance.outputs[main_out].dtype);
  KernelNeeds needs;
  needs.scratch_bytes = cross_entropy_scratch_bytes(g);
  auto run = [g, forward, logits, weight_input, in = p.inputs, out = p.outputs](const RunArgs& args) {
    auto at = [&](size_t i) { return args.in[static_cast<size_t>(in[i])]; };
    CrossEntropy c = g;
    c.x = at(logits);
    c.labels = at(logits + 1);
    if (weight_input >= 0) c.weights = args.in[static_cast<size_t>(weight_input)];
    c.scratch = static_cast<float*>(args.scratch);
    c.fault = device::fault_word();
    if (forward) {
      c.loss = args.out[static_cast<size_t>(out[0])];
      if (out.size() > 1 && out[1] >= 0)
        c.log_sums = static_cast<float*>(args.out[static_cast<size_t>(out[1])]);
      PELTON_CUDA(cross_entropy(c, stream_of(args)));
    } else {
      c.g = at(0);
      c.known_log_sums = static_cast<const float*>(at(3));
      c.dx = args.out[static_cast<size_t>(out[0])];
      PELTON_CUDA(cross_entropy_backward(c, stream_of(args)));
    }
  };
  return make_kernel(std::move(run), std::move(needs));
}

}  // namespace

void add_loss(Registry& registry) {
  registry.add({.name = "cuda.cross_entropy",
                .ops = {"cross_entropy", "cross_entropy_backward", "fused"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
