// SPDX-License-Identifier: Apache-2.0
// conv_backward_weights, perhaps followed by a cast: the fastest of cuBLASLt (kernels of one place) and
// cuDNN's plans, found by timing; depthwise ones by our own kernel.
#include "backend/cuda/conv/backward_weights.h"

#include "backend/cuda/implementations.h"
#include "backend/cuda/own/move_taps.h"
#include "backend/cuda/tactics.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const Group group = parse_group(graph, node);
  if (!group.reason.empty()) return group.reason;
  const ir::Node& n = group.node();
  if (!n.is("conv_backward_weights")) return "is not around a gradient of weights";
  if (!group.steps.empty()) return "does more than round the gradient";
  const ir::Type& g = group.graph->type(n.inputs[0]);
  if (!elem_of(g.dtype)) return cat("needs f32, f16 or bf16, got ", name(g.dtype));
  if (g.rank() > 5) return cat("takes up to 3 spatial dims, not ", g.rank() - 2);
  const ir::Type& dw = output_type(graph, node);
  if (!elem_of(dw.dtype)) return cat("does not yield ", name(dw.dtype));
  if (!dw.layout.is_plain()) return "yields a plain result";
  for (size_t i = 0; i < 2; ++i) {
    const GroupOperand& o = group.operands[i];
    if (o.input < 0 || o.reshaped) return "needs data that comes from outside the group as it is";
    const ir::Layout& l = input_type(graph, node, static_cast<size_t>(o.input)).layout;
    if (l.kind == ir::Layout::Kind::blocked) return cat("does not take layout ", l.str());
  }
  return {};
}

void add_timed(const WeightsProblem& p, const std::string& only, WeightsMethods& to) {
  add_weights_product(p, only, to);
  if (!to.empty() || only == kRows) add_weights_rows(p, only, to);
  // Plans of a second or more each.
  if (only.empty() && !to.empty() && timing_is_over()) return;
  add_weights_cudnn(p, only, to);
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  if (instance.outputs[0].count() == 0) return nothing();
  auto problem = std::make_shared<WeightsProblem>(instance, target);
  const WeightsProblem& p = *problem;
  WeightsMethods methods;
  bool known = false;  // of an earlier timing, which has judged it
  if (p.g.count() > 0 && p.x.count() > 0) {
    add_weights_depthwise(p, timing_is_over(), methods);
    if (!methods.empty()) {
      std::vector<std::string> names;
      for (const auto& m : methods) names.push_back(m->name());
      if (const std::optional<size_t> k = known_fastest(p.key(), names)) {
        std::swap(methods[0], methods[*k]);
        methods.resize(1);
      }
    } else {
      const std::vector<std::string> names = timed_weights_methods();
      if (std::optional<size_t> k = known_fastest(p.key(), names)) {
        if (names[*k] == kDirect)
          add_weights_direct(p, methods);
        else
          add_timed(p, names[*k], methods);
      }
      known = !methods.empty();
      if (methods.empty()) add_timed(p, "", methods);
    }
  }
  if (methods.empty()) add_weights_direct(p, methods);
  size_t best = 0;
  if (methods.size() > 1 || (!known && methods[0]->judged_as())) {
    best = fastest_in_memory(p.key(), [&] {
      WeightsMethods judged = std::move(methods);
      methods.clear();  // what is left where memory for the trial is missing
      add_weights_depthwise(p, true, methods);
      if (methods.empty()) add_weights_direct(p, methods);
      const WeightsTrial trial(p, judged);
      leave_out_inexact(p, trial.buffers(), judged);
      leave_out_different(p, trial.buffers(), judged);
      if (!judged.empty()) methods = std::move(judged);
      std::vector<Way> ways;
      for (const auto& m : methods)
        ways.push_back({m->name(), [&m, &trial](cudaStream_t s) { m->run(trial.buffers(), s); }});
      return fastest(p.key(), ways);
    });
  }
  std::shared_ptr<const WeightsMethod> method = std::move(methods[best]);
  method->chosen();
  KernelNeeds needs;
  needs.scratch_bytes = method->scratch_bytes();
  return make_kernel(
      [problem, method](const RunArgs& args) {
        method->run({args.in[problem->g_input], args.in[problem->x_input], args.out[0], args.scratch},
                    stream_of(args));
      },
      std::move(needs));
}

}  // namespace

WeightsTrial::WeightsTrial(const WeightsProblem& p, const WeightsMethods& methods) {
  StreamHandle stream = make_stream();
  uint32_t seed = 0;  // equal operands would make sums of squares
  auto noise = [&](DType type, int64_t count) {
    memory_.emplace_back(count * elem_bytes(elem(type)), "timing convolutions");
    PELTON_CUDA(fill_noise(memory_.back().get(), elem(type), count, stream.get(), ++seed));
    return memory_.back().get();
  };
  b_.g = noise(p.g.dtype, p.g.count());
  b_.x = noise(p.x.dtype, p.x.count());
  b_.dw = noise(p.result, element_count(p.dw));
  int64_t scratch = 0;
  for (const auto& m : methods) scratch = std::max(scratch, m->scratch_bytes());
  if (scratch > 0) b_.scratch = memory_.emplace_back(scratch, "timing convolutions").get();
  PELTON_CUDA(cudaStreamSynchronize(stream.get()));
}

WeightsProblem::WeightsProblem(const Instance& instance, const device::Target& target) {
  const Group group = parse_group(instance.graph, instance.id, &instance);
  PELTON_CHECK(group.reason.empty(), group.reason);
  const ir::Node& n = group.node();
  g_input = static_cast<size_t>(group.operands[0].input);
  x_input = static_cast<size_t>(group.operands[1].input);
  g = instance.inputs[g_input];
  x = instance.inputs[x_input];
  dw = instance.outputs[0].dims;
  result = instance.outputs[0].dtype;
  groups = n.get_int("groups");
  window = conv_window(n, instance, dw);
  multiprocessors = cuda::multiprocessors(target);
  tf32 = target.tf32;
  clusters = target.sm >= 90;
}

std::string WeightsProblem::key() const {
  return cat("conv_backward_weights ", name(g.dtype), g.dims, g.layout.str(), " ", x.dims, x.layout.str(),
             " ", name(result), dw, " g", groups, " s", window.strides, " d", window.dilations, " p",
             window.low, window.high, tf32 ? " tf32" : "", " judged", groups > 1 ? " by lines" : "");
}

void add_conv_backward(Registry& registry) {
  registry.add({.name = "cuda.conv_backward_weights",
                .ops = {"conv_backward_weights", "fused"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
