// SPDX-License-Identifier: Apache-2.0
// attention, alone or in a group of kind "attention" with the views around it: operands that are slices,
// reshapes and transposes of what comes in, and heads that go back into rows.
#include <algorithm>
#include <cmath>

#include "backend/cuda/attention/choice.h"
#include "backend/cuda/attention/views.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/attention.h"
#include "backend/cuda/own/host.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

struct Parsed {
  std::string reason;
  const ir::Graph* graph = nullptr;  // that holds the node
  ir::NodeId main;
  std::vector<ViewChain> operands;  // q, k, v, mask
  bool rows = false;                // the result is [N,L,H,E] or [N,L,H*E]
  int y = 0, log_sums = 1;          // among the results of the outer node; the second may be -1
  const ir::Node& node() const { return (*graph)[main]; }
};

// Between the attention and the result of the group: transpose [0,2,1,3], then perhaps a reshape of dense
// rows.
bool take_result(const ir::Graph& body, ir::ValueId from, Parsed& p) {
  auto position = [&](ir::ValueId v) {
    const auto at = std::find(body.outputs.begin(), body.outputs.end(), v);
    return at == body.outputs.end() ? -1 : static_cast<int>(at - body.outputs.begin());
  };
  p.log_sums = p.node().outputs.size() > 1 ? position(p.node().outputs[1]) : -1;
  if (body.outputs.size() != (p.log_sums >= 0 ? 2u : 1u)) return false;
  for (p.y = position(from); p.y < 0; p.y = position(from)) {
    const auto& uses = body[from].uses;
    if (uses.size() != 1) return false;
    const ir::Node& n = body[uses[0].user];
    if (n.is("transpose") && !p.rows && n.get_ints("perm") == ir::Ints{0, 2, 1, 3})
      p.rows = true;
    else if (!n.is("reshape"))
      return false;
    from = n.outputs[0];
  }
  return true;
}

Parsed parse(const ir::Graph& graph, ir::NodeId id) {
  Parsed p;
  const ir::Node& outer = graph[id];
  if (!outer.is("fused")) {
    p.graph = &graph;
    p.main = id;
    if (outer.outputs.size() < 2) p.log_sums = -1;
    for (size_t i = 0; i < outer.inputs.size(); ++i) {
      ViewChain chain;
      if (outer.inputs[i]) chain.input = static_cast<int>(i);
      p.operands.push_back(chain);
    }
    return p;
  }
  const ir::Graph& body = outer.get_graph("body");
  p.graph = &body;
  for (ir::NodeId n : body.order())
    if (body[n].is("attention")) {
      if (p.main) p.reason = "holds two attentions";
      p.main = n;
    }
  if (!p.main) {
    p.reason = "holds no attention";
    return p;
  }
  for (ir::ValueId v : p.node().inputs) {
    p.operands.push_back(v ? view_chain(body, v) : ViewChain());
    if (v && p.operands.back().input < 0) p.reason = cat("an operand ", p.operands.back().reason);
  }
  if (p.operands.size() > 3 && !p.operands[3].nodes.empty()) p.reason = "changes its mask";
  if (!p.reason.empty()) return p;
  if (!take_result(body, p.node().outputs[0], p)) p.reason = "does something else with the result";
  return p;
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (graph[id].is("fused") && graph[id].get_text("kind") != "attention") return "is another kind of group";
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const Parsed p = parse(graph, id);
  if (!p.reason.empty()) return p.reason;
  const ir::Node& n = p.node();
  const ir::Type &q = p.graph->type(n.inputs[0]), &v = p.graph->type(n.inputs[2]);
  if (!elem_of(q.dtype)) return cat("needs f32, f16 or bf16, got ", name(q.dtype));
  for (const ir::Type* t : {&q, &v})
    if (!t->shape[3].is_const() || t->shape[3].value() > kAttentionMaxHead)
      return cat("needs heads of a known size up to ", kAttentionMaxHead, ", got ", t->shape[3].str());
  for (size_t i = 0; i < 3; ++i) {
    // Rows must be dense: the last axis may only move with nothing in front of it.
    for (ir::NodeId step : p.operands[i].nodes) {
      const ir::Node& s = (*p.graph)[step];
      if (s.is("transpose") &&
          s.get_ints("perm").back() != static_cast<int64_t>(s.get_ints("perm").size()) - 1)
        return "transposes the elements of a head";
      if (s.is("slice") && !s.get_ints("steps").empty())
        for (int64_t k : s.get_ints("steps"))
          if (k < 1) return "reads a tensor backwards";
      if (s.is("slice"))
        for (size_t a = 0; a < s.get_ints("axes").size(); ++a) {
          const auto rank = p.graph->type(s.inputs[0]).rank();
          const int64_t axis = s.get_ints("axes")[a];
          if ((axis == rank - 1 || axis == -1) && !s.get_ints("steps").empty() && s.get_ints("steps")[a] != 1)
            return "skips elements of a head";
        }
    }
  }
  return {};
}

struct Operand {
  size_t input = 0;
  int64_t offset_bytes = 0;
};
// At exact sizes, without addresses, and where its operands lie.
struct Placed {
  Attention problem;
  Operand q, k, v;
  int mask_input = -1;
};

Placed place(const Parsed& p, const Instance& instance) {
  const ir::Node& n = p.node();
  auto view = [&](size_t i) {
    const ViewChain& chain = p.operands[i];
    return strided_view(*p.graph, chain, instance.inputs[static_cast<size_t>(chain.input)].dims,
                        instance.symbols);
  };
  const StridedView q = view(0), k = view(1), v = view(2);
  Placed out;
  Attention& g = out.problem;
  auto small = [](int64_t x) { return static_cast<int>(x); };
  g.n = small(q.dims[0]);
  g.heads = small(q.dims[1]);
  g.queries = small(q.dims[2]);
  g.depth = small(q.dims[3]);
  g.groups = small(k.dims[1]);
  g.keys = small(k.dims[2]);
  g.width = small(v.dims[3]);
  const DType type = instance.inputs[static_cast<size_t>(p.operands[0].input)].dtype;
  g.type = elem(type);
  const Dims y = {g.n, p.rows ? g.queries : g.heads, p.rows ? g.heads : g.queries, g.width};
  const Dims ys = row_major_strides(y);
  for (size_t i = 0; i < 3; ++i) {
    g.q_strides[i] = q.strides[i];
    g.k_strides[i] = k.strides[i];
    g.v_strides[i] = v.strides[i];
  }
  g.y_strides[0] = ys[0];
  g.y_strides[1] = ys[p.rows ? 2 : 1];
  g.y_strides[2] = ys[p.rows ? 1 : 2];
  g.scale = static_cast<float>(n.get_real("scale"));
  if (g.scale == 0) g.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(g.depth)));
  g.softcap = static_cast<float>(n.get_real("softcap"));
  g.causal = n.get_bool("causal");
  out.mask_input = p.operands.size() > 3 ? p.operands[3].input : -1;
  if (out.mask_input >= 0) {
    const TensorSpec& m = instance.inputs[static_cast<size_t>(out.mask_input)];
    g.mask_kind = m.dtype == DType::boolean ? Attention::boolean : Attention::added;
    if (m.dtype != DType::boolean) g.mask_type = elem(m.dtype);
    const Dims s = row_major_strides(m.dims);
    const size_t skip = 4 - m.dims.size();
    for (size_t d = 0; d < m.dims.size(); ++d) g.mask_strides[skip + d] = m.dims[d] == 1 ? 0 : s[d];
  }
  const int bytes = elem_bytes(g.type);
  auto operand = [&](size_t i, const StridedView& s) {
    return Operand{static_cast<size_t>(p.operands[i].input), s.offset * bytes};
  };
  out.q = operand(0, q);
  out.k = operand(1, k);
  out.v = operand(2, v);
  return out;
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  if (instance.outputs[0].count() == 0) return nothing();
  const Parsed p = parse(instance.graph, instance.id);
  PELTON_CHECK(p.reason.empty(), p.reason);
  const Placed placed = place(p, instance);
  const auto result = static_cast<size_t>(p.y);
  const int sums = p.log_sums;
  const std::optional<CudnnAttention> cudnn = faster_attention(placed.problem, sums >= 0);
  KernelNeeds needs;
  if (cudnn) needs.scratch_bytes = cudnn->scratch_bytes();
  auto run = [placed, result, sums, cudnn](const RunArgs& args) {
    Attention a = placed.problem;
    auto at = [&](const Operand& o) {
      return static_cast<const std::byte*>(args.in[o.input]) + o.offset_bytes;
    };
    a.q = at(placed.q);
    a.k = at(placed.k);
    a.v = at(placed.v);
    if (placed.mask_input >= 0) a.mask = args.in[static_cast<size_t>(placed.mask_input)];
    a.y = args.out[result];
    if (sums >= 0) a.log_sums = static_cast<float*>(args.out[static_cast<size_t>(sums)]);
    if (cudnn)
      cudnn->run(a, args.scratch, stream_of(args));
    else
      PELTON_CUDA(attention(a, stream_of(args)));
  };
  return make_kernel(std::move(run), std::move(needs));
}

}  // namespace

size_t keep_attention_plans(const Instance& instance, const device::Target&, const CudnnMachine& machine) {
  const Parsed p = parse(instance.graph, instance.id);
  if (!p.reason.empty() || instance.outputs[0].count() == 0) return 0;
  return keep_attention_plans(place(p, instance).problem, p.log_sums >= 0, machine);
}

void add_attention(Registry& registry) {
  registry.add({.name = kAttention,
                .ops = {"attention", "fused"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
