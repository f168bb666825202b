// SPDX-License-Identifier: Apache-2.0
// dropout, random_uniform and random_normal, the same numbers as the interpreter's.
#include "backend/cuda/own/random.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "ir/op.h"
#include "ir/random.h"

namespace pelton::backend::cuda {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const ir::Node& n = graph[id];
  const DType t = output_type(graph, id).dtype;
  if (!elem_of(t)) return cat("needs f32, f16 or bf16, got ", name(t));
  if (n.is("dropout") && !elem_of(input_type(graph, id, 1).dtype))
    return cat("needs a ratio of f32, f16 or bf16, got ", name(input_type(graph, id, 1).dtype));
  return {};
}

// What of the source belongs to the node; the rest is the run's.
RandomSource source_of(const ir::Node& node) {
  const RandomStream own = ir::random_stream(node, {0, 0});
  RandomSource r;
  r.mix = own.seed;
  r.node = own.node;
  return r;
}
RandomSource bound(RandomSource r, const RunArgs& args) {
  r.key = args.random_on_device;
  r.seed = args.random.seed;
  r.step = args.random.step;
  return r;
}

std::unique_ptr<Kernel> prepare_dropout(const Instance& instance, const device::Target&) {
  Dropout g;
  g.random = source_of(instance.node());
  g.type = elem(instance.inputs[0].dtype);
  g.ratio_type = elem(instance.inputs[1].dtype);
  g.count = instance.inputs[0].count();
  const bool mask = instance.outputs.size() > 1;
  return make_kernel([g, mask](const RunArgs& args) {
    Dropout d = g;
    d.random = bound(d.random, args);
    d.x = args.in[0];
    d.ratio = args.in[1];
    d.y = args.out[0];
    if (mask) d.mask = static_cast<uint8_t*>(args.out[1]);
    PELTON_CUDA(dropout(d, stream_of(args)));
  });
}

std::unique_ptr<Kernel> prepare_fill(const Instance& instance, const device::Target&) {
  const ir::Node& n = instance.node();
  RandomFill g;
  g.random = source_of(n);
  g.type = elem(instance.outputs[0].dtype);
  g.count = instance.outputs[0].count();
  if (n.is("random_uniform")) {
    g.a = n.get_real("low");
    g.b = n.get_real("high");
  } else {
    g.kind = RandomFill::normal;
    g.a = n.get_real("mean");
    g.b = n.get_real("scale");
  }
  return make_kernel([g](const RunArgs& args) {
    RandomFill d = g;
    d.random = bound(d.random, args);
    d.y = args.out[0];
    PELTON_CUDA(random_fill(d, stream_of(args)));
  });
}

}  // namespace

void add_random(Registry& registry) {
  registry.add({.name = "cuda.dropout",
                .ops = {"dropout"},
                .refuse = refuse,
                .prepare = prepare_dropout,
                .device = device::Kind::cuda});
  registry.add({.name = "cuda.random",
                .ops = {"random_uniform", "random_normal"},
                .refuse = refuse,
                .prepare = prepare_fill,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
