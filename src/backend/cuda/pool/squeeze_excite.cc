// SPDX-License-Identifier: Apache-2.0
// Groups of kind "squeeze_excite": x * factors(x) in one launch.
#include "backend/cuda/implementations.h"
#include "backend/cuda/pool/excitation.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

struct Parsed : ExcitationForm {
  int x = -1;
};

Parsed parse(const ir::Graph& body) {
  Parsed p;
  p.reason = "is not a product of the data with its factors";
  if (body.outputs.size() != 1) return p;
  const ir::NodeId scale = body[body.outputs[0]].producer;
  if (!scale || !body[scale].is("mul")) return p;
  for (size_t side : {size_t{0}, size_t{1}}) {
    const ir::ValueId x = body[scale].inputs[side], gate = body[scale].inputs[1 - side];
    if (input_of(body, x) < 0) continue;
    ExcitationForm form = parse_excitation(body, gate, x);
    if (form.reason.empty()) return {std::move(form), input_of(body, x)};
  }
  return p;
}

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target& target) {
  if (graph[id].get_text("kind") != "squeeze_excite") return "is another kind of group";
  if (target.sm < 90) return "needs thread block clusters (sm_90)";
  const Parsed p = parse(graph[id].get_graph("body"));
  if (!p.reason.empty()) return p.reason;
  const ir::Type &x = input_type(graph, id, static_cast<size_t>(p.x)), &y = output_type(graph, id);
  if (!is_channels_last(x.layout) || !is_channels_last(y.layout)) return "needs channels-last data";
  if (x.dtype != y.dtype) return "mixes element types";
  return refuse_excitation(p, graph, id, x.dtype);
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  if (instance.outputs[0].count() == 0) return nothing();
  const Parsed p = parse(instance.node().get_graph("body"));
  PELTON_CHECK(p.reason.empty(), p.reason);
  const auto x = static_cast<size_t>(p.x);
  Excitation factors(p, instance, instance.inputs[x]);
  KernelNeeds needs;
  needs.scratch_bytes = factors.scratch_bytes();
  factors.add_to(needs);
  return make_kernel(
      [factors, x](const RunArgs& args) {
        SqueezeExcite s = factors.bind(args, args.scratch);
        s.x = args.in[x];
        s.y = args.out[0];
        PELTON_CUDA(squeeze_excite(s, stream_of(args)));
      },
      std::move(needs));
}

}  // namespace

void add_squeeze_excite(Registry& registry) {
  registry.add({.name = "cuda.squeeze_excite",
                .ops = {"fused"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
