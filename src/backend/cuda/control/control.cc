// SPDX-License-Identifier: Apache-2.0
// if, loop and scan as conditional nodes of the graph that is recorded: which branch runs, and how often a
// body runs, is found on the device without the host. A body with a node that has no kernel here, or with
// sizes that nobody knows before, runs on the host.
#include <algorithm>

#include "backend/cuda/control/body.h"
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

std::unique_ptr<Kernel> prepare_if(const Instance& instance, const device::Target& target) {
  auto then = std::make_shared<Body>(body_of(instance, "then"), target, instance.threads),
       otherwise = std::make_shared<Body>(body_of(instance, "else"), target, instance.threads);
  KernelNeeds needs;
  needs.scratch_bytes = std::max(then->scratch_bytes(), otherwise->scratch_bytes());
  return make_kernel(
      [then, otherwise](const RunArgs& args) {
        recorded(stream_of(args), [&](cudaStream_t stream) {
          const cudaGraphConditionalHandle handle = make_condition(stream);
          PELTON_CUDA(branch_on(handle, static_cast<const bool*>(args.in[0]), stream));
          const std::vector<const void*> captured(args.in.begin() + 1, args.in.end());
          add_conditional(stream, handle, cudaGraphCondTypeIf, 2, [&](unsigned i, cudaStream_t inner) {
            const Body& body = i == 0 ? *then : *otherwise;
            const std::vector<const void*> results =
                body.run(captured, static_cast<std::byte*>(args.scratch), inner);
            for (size_t r = 0; r < results.size(); ++r)
              copy(args.out[r], results[r], body.output_bytes(r), inner);
          });
        });
      },
      std::move(needs));
}

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
        carried_(static_cast<size_t>(instance.node().get_int("carried"))),
        trip_bytes_(instance.has(0) ? bits(instance.inputs[0].dtype) / 8 : 0) {
    for (size_t i = 0; i < carried_; ++i) {
      passed_.push_back(passed_bytes_);
      // A value that an input of the body is may be written over before it is read.
      if (body_.passed_on(1 + i) >= 0) passed_bytes_ += (body_.output_bytes(1 + i) + 255) / 256 * 256;
    }
  }
  int64_t scratch_bytes() const override { return kLoopStateBytes + passed_bytes_ + body_.scratch_bytes(); }
  int64_t packed_bytes() const override { return body_.packed_bytes(); }

  void run(const RunArgs& args) const override {
    recorded(stream_of(args), [&](cudaStream_t stream) { record(args, stream); });
  }

 private:
  void record(const RunArgs& args, cudaStream_t stream) const {
    auto* const base = static_cast<std::byte*>(args.scratch);
    auto* const state = reinterpret_cast<LoopState*>(base);
    auto operand = [&](size_t i) { return i < args.in.size() ? args.in[i] : nullptr; };
    for (size_t i = 0; i < carried_; ++i)
      copy(args.out[i], args.in[2 + i], body_.output_bytes(1 + i), stream);
    const cudaGraphConditionalHandle handle = make_condition(stream);
    PELTON_CUDA(begin_loop(handle, state, INT64_MAX, operand(0), trip_bytes_,
                           static_cast<const bool*>(operand(1)), stream));
    add_conditional(stream, handle, cudaGraphCondTypeWhile, 1, [&](unsigned, cudaStream_t inner) {
      std::vector<const void*> inputs{&state->iteration, &state->go_on};
      for (size_t i = 0; i < carried_; ++i) inputs.push_back(args.out[i]);
      for (size_t i = 2 + carried_; i < args.in.size(); ++i) inputs.push_back(args.in[i]);
      std::byte* const passed = base + kLoopStateBytes;
      std::vector<const void*> results = body_.run(inputs, passed + passed_bytes_, inner);
      for (size_t i = carried_; i + 1 < results.size(); ++i)
        if (const int64_t bytes = body_.output_bytes(1 + i); bytes > 0)
          PELTON_CUDA(put_slice(args.out[i], results[1 + i], {1, 0, bytes}, state, inner));
      for (size_t i = 0; i < carried_; ++i) {
        if (body_.passed_on(1 + i) < 0) continue;
        copy(passed + passed_[i], results[1 + i], body_.output_bytes(1 + i), inner);
        results[1 + i] = passed + passed_[i];
      }
      for (size_t i = 0; i < carried_; ++i)
        copy(args.out[i], results[1 + i], body_.output_bytes(1 + i), inner);
      PELTON_CUDA(next_iteration(handle, state, static_cast<const bool*>(results[0]), inner));
    });
  }

  Body body_;
  size_t carried_;
  int trip_bytes_;
  std::vector<int64_t> passed_;  // offset of each carried value that an input of the body is
  int64_t passed_bytes_ = 0;
};

}  // namespace

void add_control(Registry& registry) {
  registry.add({.name = "cuda.if",
                .ops = {"if"},
                .refuse = refuse_if,
                .prepare = prepare_if,
                .device = device::Kind::cuda});
  registry.add(
      {.name = "cuda.loop",
       .ops = {"loop"},
       .refuse = refuse_loop,
       .prepare = [](const Instance& instance, const device::Target& target) -> std::unique_ptr<Kernel> {
         return std::make_unique<LoopKernel>(instance, target);
       },
       .device = device::Kind::cuda});
  add_steps(registry);
}

}  // namespace pelton::backend::cuda
