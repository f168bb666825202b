// SPDX-License-Identifier: Apache-2.0
// attention_backward in 16 bits, alone or in a group of kind "attention_backward" with the views around it:
// operands that are slices, reshapes and transposes of what comes in, and gradients that go back into rows.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cuda/attention/choice.h"
#include "backend/cuda/attention/views.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/attention_backward.h"
#include "backend/cuda/own/host.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

struct Parsed {
  std::string reason;
  const ir::Graph* graph = nullptr;  // that holds the node
  ir::NodeId main;
  std::vector<ViewChain> operands;  // g, q, k, v, y, log sums, mask
  int results[3] = {0, 1, 2};       // dq, dk, dv among those of the outer node
  bool rows[3] = {};                // as [N,L,H,D] or [N,L,H*D]
  const ir::Node& node() const { return (*graph)[main]; }
};

Parsed parse(const ir::Graph& graph, ir::NodeId id) {
  Parsed p;
  const ir::Node& outer = graph[id];
  if (!outer.is("fused")) {
    p.graph = &graph;
    p.main = id;
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
    if (body[n].is("attention_backward")) p.main = n;
  if (!p.main) {
    p.reason = "holds no gradient of attention";
    return p;
  }
  for (size_t i = 0; i < p.node().inputs.size(); ++i) {
    const ir::ValueId v = p.node().inputs[i];
    p.operands.push_back(v ? view_chain(body, v) : ViewChain());
    if (v && p.operands.back().input < 0) p.reason = cat("an operand ", p.operands.back().reason);
    if (i > 4 && !p.operands.back().nodes.empty()) p.reason = "changes its sums or its mask";
  }
  if (body.outputs.size() != 3) p.reason = "does something else with the gradients";
  for (size_t r = 0; p.reason.empty() && r < 3; ++r)
    for (ir::ValueId v = p.node().outputs[r];;) {
      const auto at = std::find(body.outputs.begin(), body.outputs.end(), v);
      if (at != body.outputs.end()) {
        p.results[r] = static_cast<int>(at - body.outputs.begin());
        break;
      }
      if (body[v].uses.size() != 1) {
        p.reason = "does something else with the gradients";
        break;
      }
      const ir::Node& n = body[body[v].uses[0].user];
      if (n.is("transpose") && !p.rows[r] && n.get_ints("perm") == ir::Ints{0, 2, 1, 3}) {
        p.rows[r] = true;
      } else if (!n.is("reshape")) {
        p.reason = "does something else with the gradients";
        break;
      }
      v = n.outputs[0];
    }
  return p;
}

// Every row must start at a multiple of 8 elements, whatever the sizes.
std::string refuse_views(const Parsed& p) {
  for (size_t i = 0; i < 5; ++i) {
    bool first = true;
    for (ir::NodeId step : p.operands[i].nodes) {
      const ir::Node& s = (*p.graph)[step];
      const Shape& from = p.graph->type(s.inputs[0]).shape;
      if (first && divisible_by(from.back(), 8, {}) != Tri::yes) return "has rows of odd sizes";
      first = false;
      if (s.is("transpose") && s.get_ints("perm").back() != static_cast<int64_t>(from.size()) - 1)
        return "transposes the elements of a head";
      if (!s.is("slice")) continue;
      for (size_t a = 0; a < s.get_ints("axes").size(); ++a) {
        const ir::Ints& steps = s.get_ints("steps");
        if (!steps.empty() && steps[a] < 1) return "reads a tensor backwards";
        const auto last = static_cast<int64_t>(from.size()) - 1;
        if (s.get_ints("axes")[a] != last && s.get_ints("axes")[a] != -1) continue;
        if (!steps.empty() && steps[a] != 1) return "skips elements of a head";
        if (divisible_by(s.get_dims("starts")[a], 8, {}) != Tri::yes) return "starts inside of 8 elements";
      }
    }
  }
  return {};
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (graph[id].is("fused") && graph[id].get_text("kind") != "attention_backward")
    return "is another kind of group";
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const Parsed p = parse(graph, id);
  if (!p.reason.empty()) return p.reason;
  const ir::Node& n = p.node();
  const ir::Type &q = p.graph->type(n.inputs[1]), &v = p.graph->type(n.inputs[3]);
  if (q.dtype != DType::f16 && q.dtype != DType::bf16) return cat("needs f16 or bf16, got ", name(q.dtype));
  for (const ir::Type* t : {&q, &v})
    if (!t->shape[3].is_const() || t->shape[3].value() > kAttentionBackwardMaxHead ||
        t->shape[3].value() % 8 != 0)
      return cat("needs heads of a known size, a multiple of 8 up to ", kAttentionBackwardMaxHead, ", got ",
                 t->shape[3].str());
  if (n.inputs.size() > 6 && n.inputs[6]) {
    const DType mask = p.graph->type(n.inputs[6]).dtype;
    if (mask != DType::boolean && !elem_of(mask)) return cat("has a mask of ", name(mask));
  }
  return refuse_views(p);
}

// Distances of images, heads and rows of dense [N,H,L,D], or of its rows [N,L,H,D].
void set(int64_t (&strides)[3], const Dims& dims, bool rows) {
  const int64_t heads = dims[1], length = dims[2], depth = dims[3];
  strides[0] = heads * length * depth;
  strides[1] = rows ? depth : length * depth;
  strides[2] = rows ? heads * depth : depth;
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const Parsed p = parse(instance.graph, instance.id);
  PELTON_CHECK(p.reason.empty(), p.reason);
  const ir::Node& n = p.node();
  struct Operand {
    size_t input = 0;
    int64_t offset_bytes = 0;
  };
  Operand at[5];
  auto view = [&](size_t i, int64_t(&strides)[3]) {
    const ViewChain& chain = p.operands[i];
    const TensorSpec& in = instance.inputs[static_cast<size_t>(chain.input)];
    const StridedView v = strided_view(*p.graph, chain, in.dims, instance.symbols);
    for (size_t d = 0; d < 3; ++d) strides[d] = v.strides[d];
    at[i] = {static_cast<size_t>(chain.input), v.offset * bits(in.dtype) / 8};
    return v.dims;
  };
  AttentionBackward b;
  Attention& f = b.forward;
  const Dims q = view(1, f.q_strides), k = view(2, f.k_strides), v = view(3, f.v_strides);
  view(0, b.g_strides);
  view(4, f.y_strides);
  auto small = [](int64_t x) { return static_cast<int>(x); };
  f.type = elem(instance.inputs[at[1].input].dtype);
  f.n = small(q[0]);
  f.heads = small(q[1]);
  f.queries = small(q[2]);
  f.depth = small(q[3]);
  f.groups = small(k[1]);
  f.keys = small(k[2]);
  f.width = small(v[3]);
  if (f.heads > 0 && (f.groups == 0 || f.heads % f.groups != 0))
    fail(ErrorCode::bad_shape, cat("has ", f.heads, " query heads for ", f.groups, " key heads"));
  f.scale = static_cast<float>(n.get_real("scale"));
  if (f.scale == 0) f.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(f.depth)));
  f.softcap = static_cast<float>(n.get_real("softcap"));
  f.causal = n.get_bool("causal");
  set(b.dq_strides, q, p.rows[0]);
  set(b.dk_strides, k, p.rows[1]);
  set(b.dv_strides, v, p.rows[2]);
  const auto log_sums = static_cast<size_t>(p.operands[5].input);
  const int mask = p.operands.size() > 6 ? p.operands[6].input : -1;
  if (mask >= 0) {
    const TensorSpec& m = instance.inputs[static_cast<size_t>(mask)];
    f.mask_kind = m.dtype == DType::boolean ? Attention::boolean : Attention::added;
    if (m.dtype != DType::boolean) f.mask_type = elem(m.dtype);
    const Dims s = row_major_strides(m.dims);
    const size_t skip = 4 - m.dims.size();
    for (size_t d = 0; d < m.dims.size(); ++d) f.mask_strides[skip + d] = m.dims[d] == 1 ? 0 : s[d];
  }
  const std::optional<CudnnAttentionBackward> cudnn = faster_attention_backward(b);
  KernelNeeds needs;
  needs.scratch_bytes = cudnn ? cudnn->scratch_bytes() : q[0] * q[1] * q[2] * 4;
  return make_kernel(
      [b, cudnn, mask, log_sums, operands = std::to_array(at),
       results = std::to_array(p.results)](const RunArgs& args) {
        auto in = [&](size_t i) {
          return static_cast<const std::byte*>(args.in[operands[i].input]) + operands[i].offset_bytes;
        };
        auto out = [&](size_t i) { return args.out[static_cast<size_t>(results[i])]; };
        AttentionBackward a = b;
        a.g = in(0);
        a.forward.q = in(1);
        a.forward.k = in(2);
        a.forward.v = in(3);
        a.forward.y = const_cast<std::byte*>(in(4));
        a.forward.log_sums = static_cast<float*>(const_cast<void*>(args.in[log_sums]));
        if (mask >= 0) a.forward.mask = args.in[static_cast<size_t>(mask)];
        a.dq = out(0);
        a.dk = out(1);
        a.dv = out(2);
        a.row_sums = static_cast<float*>(args.scratch);
        if (cudnn)
          cudnn->run(a, args.scratch, stream_of(args));
        else
          PELTON_CUDA(attention_backward(a, stream_of(args)));
      },
      std::move(needs));
}

}  // namespace

void add_attention_backward(Registry& registry) {
  registry.add({.name = "cuda.attention_backward",
                .ops = {"attention_backward", "fused"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
