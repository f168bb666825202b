// SPDX-License-Identifier: Apache-2.0
// conv, conv_transpose and conv_backward_data with the chain that follows, conv also with a factor of each
// image and channel in front (the gate of squeeze-and-excite): the fastest of our kernels and cuDNN's plans,
// found by timing when the kernel is prepared.
#include "backend/cuda/conv/problem.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/conv_gemm.h"
#include "backend/cuda/own/move_taps.h"
#include "backend/cuda/tactics.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

// Gated problems are products on tensor cores.
std::string refuse_gate(const Group& group, const ir::Graph& graph, ir::NodeId node) {
  const ir::Node& n = group.node();
  const auto gate = static_cast<size_t>(group.gate.input);
  const ir::Type &x = input_type(graph, node, static_cast<size_t>(group.operands[0].input)),
                 &factors = input_type(graph, node, gate), &y = output_type(graph, node);
  if (!n.is("conv") || n.get_int("groups") != 1 || x.rank() > 4) return "has a gate before another form";
  if ((x.dtype != DType::f16 && x.dtype != DType::bf16) || factors.dtype != x.dtype)
    return cat("a gate needs f16 or bf16, got ", name(x.dtype), " and ", name(factors.dtype));
  const Shape& w = group.operands[1].shape;
  for (size_t d = 2; d < w.size(); ++d)
    if (!(w[d] == Dim(1))) return "has a gate before a window";
  for (const char* side : {"low", "high"})
    for (const Dim& d : n.get_dims(side))
      if (!(d == Dim(0))) return "has a gate before pads";
  const Dim& c = x.shape[1];
  if (!c.is_const() || c.value() % 8 != 0 || c.value() > kConvGemmMaxGated)
    return cat("a gate needs a multiple of 8 up to ", kConvGemmMaxGated, " channels, got ", c.str());
  if (!is_channels_last(x.layout) || !is_channels_last(y.layout)) return "a gate needs channels-last data";
  return {};
}

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const Group group = parse_group(graph, node, nullptr, {.gate = true});
  if (!group.reason.empty()) return group.reason;
  const ir::Node& n = group.node();
  if (!n.is("conv") && !n.is("conv_transpose") && !n.is("conv_backward_data"))
    return "is not around a convolution";
  const ir::Type& x = group.graph->type(n.inputs[0]);
  if (!elem_of(x.dtype)) return cat("needs f32, f16 or bf16, got ", name(x.dtype));
  if (x.rank() > 5) return cat("takes up to 3 spatial dims, not ", x.rank() - 2);
  const ir::Type& y = output_type(graph, node);
  if (!elem_of(y.dtype)) return cat("does not yield ", name(y.dtype));
  if (group.gate.present())
    if (std::string why = refuse_gate(group, graph, node); !why.empty()) return why;
  if (group.operands[0].input < 0 || group.operands[0].reshaped || group.operands[1].reshaped)
    return "needs data that comes from outside the group as it is";
  const ir::Type& outer = input_type(graph, node, static_cast<size_t>(group.operands[0].input));
  for (const ir::Layout& l : {outer.layout, y.layout})
    if (l.kind == ir::Layout::Kind::blocked) return cat("does not take layout ", l.str());
  if (outer.layout != y.layout &&
      !(outer.layout.is_plain() && stem_takes(n, x, group.graph->type(n.inputs[1]))))
    return "changes the layout of more channels than the kernel of first layers takes";
  if (group.operands.size() > 2 && group.operands[2].present() && group.operands[2].reshaped)
    return "reshapes its bias";
  return refuse_steps(group, graph, node, group.operands.size() > 2 && group.operands[2].present());
}

// Buffers with numbers in them, to time with.
class Trial {
 public:
  Trial(const ConvProblem& p, int64_t scratch_bytes) {
    b_.x = noise(p.x.dtype, p.x.count());
    b_.w = noise(p.x.dtype, element_count(p.w));
    if (p.gate_input >= 0) b_.gate = noise(p.x.dtype, p.x.dims[0] * p.x.dims[1]);
    b_.y = noise(p.y.dtype, p.y.count());
    if (scratch_bytes > 0) b_.scratch = memory_.emplace_back(scratch_bytes, "timing convolutions").get();
    b_.steps = p.steps.form;
    for (int i = 0; i < b_.steps.count; ++i)
      if (b_.steps.steps[i].where != EpilogueStep::none)
        // Large enough for any form of operand.
        b_.steps.steps[i].operand = noise(DType::f32, p.y.count());
    // Not the whole device: another thread may be recording.
    PELTON_CUDA(cudaStreamSynchronize(stream_.get()));
  }
  const ConvBuffers& buffers() const { return b_; }

 private:
  void* noise(DType type, int64_t count) {
    const Elem e = elem(type);
    memory_.emplace_back(std::max<int64_t>(count, 1) * elem_bytes(e), "timing convolutions");
    PELTON_CUDA(fill_noise(memory_.back().get(), e, count, stream_.get()));
    return memory_.back().get();
  }
  StreamHandle stream_ = make_stream();
  std::vector<DeviceBuffer> memory_;
  ConvBuffers b_;
};

// Not worth a plan of a library, and sums in order are the closest to the straightforward ones.
bool small_in_f32(const ConvProblem& p) {
  const int64_t depth = p.w[1] * p.taps();
  return p.x.dtype == DType::f32 && !p.transposed && depth <= 256 && p.y.count() * depth <= (1 << 20);
}

void add_timed_methods(const ConvProblem& p, const std::string& only, ConvMethods& to) {
  add_gemm_methods(p, 6, only, to);  // their estimate is rough: most are timed
  if (p.gate_input >= 0) return;
  add_f32_methods(p, 6, only, to);
  add_product_methods(p, only, to);
  // Plans of a second or more each.
  if (only.empty() && !to.empty() && timing_is_over()) return;
  add_cudnn_methods(p, only, to);
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  if (instance.outputs[0].count() == 0) return nothing();
  auto problem = std::make_shared<ConvProblem>(instance, target);
  const ConvProblem& p = *problem;
  ConvMethods methods;
  if (p.x.count() > 0 && element_count(p.w) > 0) {
    // Where one of these takes the problem, it is bound by memory and nothing is faster.
    if (p.gate_input < 0) {
      add_depthwise_methods(p, methods);
      add_stem_methods(p, methods);
    }
    if (methods.empty() && small_in_f32(p)) add_direct_method(p, methods);
    if (methods.empty()) {
      // What was the fastest before is made alone.
      const std::vector<std::string> names = timed_conv_methods();
      if (std::optional<size_t> known = known_fastest(p.key(), names))
        add_timed_methods(p, names[*known], methods);
      if (methods.empty()) add_timed_methods(p, "", methods);
    }
  }
  if (methods.empty() && p.gate_input >= 0)
    fail(ErrorCode::limit, cat("a gated convolution of ", p.x.dims, " has too many places"), "",
         "use a smaller batch");
  if (methods.empty()) add_direct_method(p, methods);
  size_t best = 0;
  if (methods.size() > 1) {
    int64_t scratch = 0;
    for (const auto& m : methods) scratch = std::max(scratch, m->scratch_bytes());
    best = fastest_in_memory(p.key(), [&] {
      const Trial trial(p, scratch);
      std::vector<Way> ways;
      for (const auto& m : methods)
        ways.push_back({m->name(), [&m, &trial](cudaStream_t s) { m->run(trial.buffers(), s); }});
      return fastest(p.key(), ways);
    });
  }
  std::shared_ptr<const ConvMethod> method = std::move(methods[best]);
  method->chosen();
  KernelNeeds needs;
  needs.scratch_bytes = method->scratch_bytes();
  if (Packed packed = method->packed()) {
    needs.packed.push_back(std::move(packed));
    if (p.w_input >= 0) needs.unread.push_back(static_cast<size_t>(p.w_input));
  }
  return make_kernel(
      [problem, method](const RunArgs& args) {
        ConvBuffers b;
        b.x = args.in[static_cast<size_t>(problem->x_input)];
        b.gate = problem->gate_input >= 0 ? args.in[static_cast<size_t>(problem->gate_input)] : nullptr;
        b.w = problem->w_input >= 0 ? args.in[static_cast<size_t>(problem->w_input)] : nullptr;
        b.y = args.out[0];
        b.scratch = args.scratch;
        b.steps = problem->steps.bind(args);
        method->run(b, stream_of(args));
      },
      std::move(needs));
}

}  // namespace

size_t keep_conv_plans(const Instance& instance, const device::Target& target, const CudnnMachine& machine) {
  const ConvProblem p(instance, target, false);
  const bool depthwise = p.groups > 1 && p.groups == p.x.dims[1];
  if (p.y.count() == 0 || p.x.count() == 0 || p.gate_input >= 0 || depthwise || small_in_f32(p)) return 0;
  return keep_cudnn_plans(p, machine);
}

void add_conv(Registry& registry) {
  registry.add({.name = kConv,
                .ops = {"conv", "conv_transpose", "conv_backward_data", "fused"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
