// SPDX-License-Identifier: Apache-2.0
// Groups of kind "excite" (passes/fuse_blocks.h): a depthwise convolution with its steps, and the factors
// that squeeze-and-excite gives its channels. The convolution sums up its results on the way, so that nothing
// reads them again before the product that takes them with their factors (cuda.conv).
#include "backend/cuda/aligned.h"
#include "backend/cuda/conv/problem.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/pool/excitation.h"
#include "ir/builder.h"
#include "ir/infer.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

// The group taken apart: its convolution as a group by itself, over the same inputs.
struct Split {
  std::string reason;
  ir::Graph graph{"excite"};
  ir::NodeId node;
  ExcitationForm form;
};

Split split(const ir::Graph& outer, ir::NodeId id) {
  Split s;
  const ir::Graph& body = outer[id].get_graph("body");
  if (body.outputs.size() != 2) {
    s.reason = "does not yield the data and its factors";
    return s;
  }
  const ir::ValueId x = body.outputs[0];
  s.form = parse_excitation(body, body.outputs[1], x);
  s.reason = s.form.reason;
  if (!s.reason.empty()) return s;
  auto conv = std::make_shared<ir::Graph>(body);
  conv->outputs = {x};
  const std::vector<ir::NodeId> order(conv->order());
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    bool used = false;
    for (ir::ValueId v : (*conv)[*it].outputs) used |= !(*conv)[v].uses.empty() || conv->is_output(v);
    if (!used) conv->remove(*it);
  }
  s.graph.symbols = body.symbols;
  std::vector<ir::ValueId> inputs;
  for (ir::ValueId v : outer[id].inputs) inputs.push_back(s.graph.add_input(outer.type(v)));
  s.node = s.graph.add_node(ir::op("fused"), inputs,
                            {{"body", ir::GraphPtr(conv)}, {"kind", std::string("conv")}}, 1);
  ir::infer(s.graph, s.node);
  const ir::ValueId y = s.graph[s.node].outputs[0];
  s.graph.edit(y).type = outer.type(outer[id].outputs[0]);
  s.graph.add_output(y);
  return s;
}

// What the window kernel of depthwise convolutions takes.
std::string refuse_window(const Group& group, const ir::Type& x, const ir::Type& y) {
  const ir::Node& n = group.node();
  const Shape& w = group.operands[1].shape;
  if (!n.is("conv") || x.rank() != 4) return "is not a convolution of two spatial dims";
  const Dim &c = x.shape[1], &k = w[2];
  if (!c.is_const() || n.get_int("groups") != c.value() || !(w[0] == c) || c.value() % 8 != 0)
    return "is not depthwise over a multiple of 8 channels";
  if (!(k == w[3]) || (!(k == Dim(3)) && !(k == Dim(5)))) return "has another window than 3x3 and 5x5";
  auto same = [&](const char* attr, int64_t least, int64_t most) {
    const ir::Ints v = n.get_ints(attr);
    return v.empty() || (v[0] == v[1] && v[0] >= least && v[0] <= most);
  };
  if (!same("strides", 1, 2) || !same("dilations", 1, 1)) return "has other strides or a dilation";
  if (!is_channels_last(x.layout) || !is_channels_last(y.layout)) return "needs channels-last data";
  if (x.dtype != y.dtype) return "mixes element types";
  return {};
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target& target) {
  if (graph[id].get_text("kind") != "excite") return "is another kind of group";
  if (target.sm < 90) return "needs thread block clusters (sm_90)";
  const Split s = split(graph, id);
  if (!s.reason.empty()) return s.reason;
  const Group group = parse_group(s.graph, s.node);
  if (!group.reason.empty()) return group.reason;
  const GroupOperand &data = group.operands[0], &weights = group.operands[1];
  if (data.input < 0 || data.reshaped || weights.input < 0 || weights.reshaped)
    return "needs data and weights that come from outside the group as they are";
  const ir::Type &x = input_type(graph, id, static_cast<size_t>(data.input)), &y = output_type(graph, id);
  if (std::string why = refuse_window(group, x, y); !why.empty()) return why;
  const bool bias = group.operands.size() > 2 && group.operands[2].present();
  if (bias && group.operands[2].reshaped) return "reshapes its bias";
  if (std::string why = refuse_steps(group, s.graph, s.node, bias); !why.empty()) return why;
  return refuse_excitation(s.form, graph, id, x.dtype);
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  if (instance.outputs[0].count() == 0) return nothing();
  const Split s = split(instance.graph, instance.id);
  PELTON_CHECK(s.reason.empty(), s.reason);
  const Instance conv{
      s.graph,          s.node,          instance.inputs, {instance.outputs[0]}, instance.constants,
      instance.symbols, instance.threads};
  auto problem = std::make_shared<ConvProblem>(conv, target);
  ConvMethods methods;
  add_depthwise_methods(*problem, methods);
  const int parts = methods.empty() ? 0 : methods[0]->parts();
  if (parts == 0)
    fail(ErrorCode::limit, cat("a depthwise convolution of ", problem->x.dims, " is too large to sum up"), "",
         "use a smaller batch or image");
  std::shared_ptr<const ConvMethod> method = std::move(methods[0]);
  const TensorSpec& y = instance.outputs[0];
  Excitation factors(s.form, instance, y);
  const int64_t sums_at = aligned(method->scratch_bytes());
  const int64_t factors_at = sums_at + aligned(y.dims[0] * parts * y.dims[1] * int64_t{4});
  KernelNeeds needs;
  needs.scratch_bytes = factors_at + factors.scratch_bytes();
  factors.add_to(needs);
  if (Packed packed = method->packed()) {
    needs.packed.push_back(std::move(packed));
    needs.unread.push_back(static_cast<size_t>(problem->w_input));
  }
  return make_kernel(
      [problem, method, factors, parts, sums_at, factors_at](const RunArgs& args) {
        auto* scratch = static_cast<std::byte*>(args.scratch);
        ConvBuffers b;
        b.x = args.in[static_cast<size_t>(problem->x_input)];
        b.w = args.in[static_cast<size_t>(problem->w_input)];
        b.y = args.out[0];
        b.scratch = scratch;
        b.part_sums = reinterpret_cast<float*>(scratch + sums_at);
        b.steps = problem->steps.bind(args);
        SqueezeExcite e = factors.bind(args, scratch + factors_at);
        method->run(b, stream_of(args));
        e.part_sums = b.part_sums;
        e.parts = parts;
        e.y = args.out[1];
        PELTON_CUDA(squeeze_excite(e, stream_of(args)));
      },
      std::move(needs));
}

}  // namespace

void add_excite(Registry& registry) {
  registry.add({.name = "cuda.excite",
                .ops = {"fused"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
