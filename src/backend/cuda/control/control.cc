// SPDX-License-Identifier: Apache-2.0
// if, loop and scan as conditional nodes of the graph that is recorded: which branch runs, and how often a
// body runs, is found on the device without the host. A body with a node that has no kernel here, or with
// sizes that nobody knows before, runs on the host.
#include <algorithm>

#include "backend/cuda/control/carried.h"
#include "backend/cuda/control/conditional.h"
#include "backend/cuda/control/steps.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/control.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

// --- if

// An `if` may have a branch that cannot run at the sizes of a run: they are fixed.
std::string refuse_if(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  if (std::string why = refuse_plain(graph, node, {}); !why.empty()) return why;
  for (const char* branch : {"then", "else"}) {
    const ir::Graph& body = graph[node].get_graph(branch);
    if (std::string why = refuse_body(body, target, {}); !why.empty()) return why;
    for (size_t i = 0; i < graph[node].outputs.size(); ++i)
      if (!same_form(body.type(body.outputs[i]), output_type(graph, node, i)))
        return "has branches that yield different sizes";
  }
  return {};
}

class IfKernel final : public Kernel {
 public:
  IfKernel(const Instance& instance, const device::Target& target)
      : then_(body_of(instance, "then"), target, instance.threads),
        else_(body_of(instance, "else"), target, instance.threads) {}
  int64_t scratch_bytes() const override { return std::max(then_.scratch_bytes(), else_.scratch_bytes()); }
  int64_t packed_bytes() const override { return then_.packed_bytes() + else_.packed_bytes(); }

  void run(const RunArgs& args) const override {
    recorded(stream_of(args), [&](cudaStream_t stream) {
      const cudaGraphConditionalHandle handle = make_condition(stream);
      PELTON_CUDA(branch_on(handle, static_cast<const bool*>(args.in[0]), stream));
      const std::vector<const void*> captured(args.in.begin() + 1, args.in.end());
      add_conditional(stream, handle, cudaGraphCondTypeIf, 2, [&](unsigned i, cudaStream_t inner) {
        const Body& body = i == 0 ? then_ : else_;
        const std::vector<const void*> results =
            body.run(captured, static_cast<std::byte*>(args.scratch), inner);
        for (size_t r = 0; r < results.size(); ++r)
          copy(args.out[r], results[r], body.output_bytes(r), inner);
      });
    });
  }

 private:
  Body then_, else_;
};

// --- loop

std::string refuse_loop(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  const Symbols symbols = symbols_of_operands(graph, node);
  if (std::string why = refuse_plain(graph, node, symbols); !why.empty()) return why;
  const ir::Node& n = graph[node];
  if (!n.inputs.empty() && n.inputs[0])
    if (const DType t = input_type(graph, node, 0).dtype; t != DType::i64 && t != DType::i32)
      return cat("has a trip count of type ", name(t));
  const ir::Graph& body = n.get_graph("body");
  if (std::string why = refuse_body(body, target, symbols); !why.empty()) return why;
  const auto carried = static_cast<size_t>(n.get_int("carried"));
  for (size_t i = 0; i < carried; ++i)
    for (const ir::Type* t :
         {&input_type(graph, node, 2 + i), &body.type(body.outputs[1 + i]), &output_type(graph, node, i)})
      if (!same_form(body.type(body.inputs[2 + i]), *t)) return "carries a value of changing size";
  return {};
}

class LoopKernel final : public Kernel {
 public:
  LoopKernel(const Instance& instance, const device::Target& target)
      : body_(body_of(instance, "body"), target, instance.threads),
        carried_(body_, 1, static_cast<size_t>(instance.node().get_int("carried"))),
        trip_bytes_(instance.has(0) ? bits(instance.inputs[0].dtype) / 8 : 0) {}
  int64_t scratch_bytes() const override {
    return kLoopStateBytes + carried_.scratch_bytes() + body_.scratch_bytes();
  }
  int64_t packed_bytes() const override { return body_.packed_bytes(); }

  void run(const RunArgs& args) const override {
    recorded(stream_of(args), [&](cudaStream_t stream) { record(args, stream); });
  }

 private:
  void record(const RunArgs& args, cudaStream_t stream) const {
    auto* const base = static_cast<std::byte*>(args.scratch);
    auto* const state = reinterpret_cast<LoopState*>(base);
    auto operand = [&](size_t i) { return i < args.in.size() ? args.in[i] : nullptr; };
    const size_t carried = carried_.count();
    if (carried > 0) carried_.begin(args.out, &args.in[2], stream);
    const cudaGraphConditionalHandle handle = make_condition(stream);
    PELTON_CUDA(begin_loop(handle, state, INT64_MAX, operand(0), trip_bytes_,
                           static_cast<const bool*>(operand(1)), stream));
    add_conditional(stream, handle, cudaGraphCondTypeWhile, 1, [&](unsigned, cudaStream_t inner) {
      std::vector<const void*> inputs{&state->iteration, &state->go_on};
      for (size_t i = 0; i < carried; ++i) inputs.push_back(args.out[i]);
      for (size_t i = 2 + carried; i < args.in.size(); ++i) inputs.push_back(args.in[i]);
      std::byte* const aside = base + kLoopStateBytes;
      std::vector<const void*> results = body_.run(inputs, aside + carried_.scratch_bytes(), inner);
      for (size_t i = carried; i + 1 < results.size(); ++i)
        if (const int64_t bytes = body_.output_bytes(1 + i); bytes > 0)
          PELTON_CUDA(put_slice(args.out[i], results[1 + i], {1, 0, bytes}, state, inner));
      carried_.set_aside(results, aside, inner);
      // Whether to go on may be one of the carried inputs, as this iteration was given it.
      PELTON_CUDA(next_iteration(handle, state, static_cast<const bool*>(results[0]), inner));
      carried_.hand_over(args.out, results, inner);
    });
  }

  Body body_;
  Carried carried_;
  int trip_bytes_;
};

template <class K>
std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  return std::make_unique<K>(instance, target);
}

}  // namespace

void add_control(Registry& registry) {
  registry.add({.name = "cuda.if",
                .ops = {"if"},
                .refuse = refuse_if,
                .prepare = prepare<IfKernel>,
                .device = device::Kind::cuda});
  registry.add({.name = "cuda.loop",
                .ops = {"loop"},
                .refuse = refuse_loop,
                .prepare = prepare<LoopKernel>,
                .device = device::Kind::cuda});
  add_steps(registry);
}

}  // namespace pelton::backend::cuda
