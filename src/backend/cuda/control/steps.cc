// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/control/steps.h"

#include <string_view>

#include "backend/cuda/aligned.h"
#include "backend/cuda/control/carried.h"
#include "backend/cuda/control/conditional.h"
#include "backend/cuda/own/control.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target& target) {
  const Symbols symbols = symbols_of_operands(graph, id);
  if (std::string why = refuse_plain(graph, id, symbols); !why.empty()) return why;
  const ir::Node& n = graph[id];
  const ir::Graph& body = n.get_graph("body");
  if (std::string why = refuse_body(body, target, symbols); !why.empty()) return why;
  const auto carried = static_cast<size_t>(n.get_int("carried"));
  for (size_t i = 0; i < carried; ++i)
    for (const ir::Type* t :
         {&input_type(graph, id, i), &body.type(body.outputs[i]), &output_type(graph, id, i)})
      if (!same_form(body.type(body.inputs[i]), *t)) return "carries a value of changing size";
  return {};
}

// The operand `index` of those that a list of the node is about, as slices along its axis.
Slices slices_of(const ir::Node& n, std::string_view axes, std::string_view reverse, size_t index,
                 const TensorSpec& whole) {
  const ir::Ints &all = n.get_ints(axes), &backwards = n.get_ints(reverse);
  int64_t axis = all.empty() ? 0 : all[index];
  if (axis < 0) axis += static_cast<int64_t>(whole.dims.size());
  Slices s;
  s.count = whole.dims[static_cast<size_t>(axis)];
  s.pieces = element_count(Dims(whole.dims.begin(), whole.dims.begin() + axis));
  s.bytes = element_count(Dims(whole.dims.begin() + axis + 1, whole.dims.end())) * bits(whole.dtype) / 8;
  s.backwards = !backwards.empty() && backwards[index] != 0;
  return s;
}

class ScanKernel final : public Kernel {
 public:
  ScanKernel(const Instance& instance, const device::Target& target)
      : body_(body_of(instance, "body"), target, instance.threads),
        carried_(body_, 0, static_cast<size_t>(instance.node().get_int("carried"))) {
    const ir::Node& n = instance.node();
    const size_t carried = carried_.count();
    const auto scanned = static_cast<size_t>(n.get_int("scanned"));
    body_at_ = kLoopStateBytes + carried_.scratch_bytes();
    for (size_t i = 0; i < scanned; ++i) {
      taken_.push_back({slices_of(n, "axes", "reverse", i, instance.inputs[carried + i]), body_at_});
      body_at_ += aligned(taken_.back().slices.pieces * taken_.back().slices.bytes);
    }
    for (size_t i = carried; i < instance.outputs.size(); ++i)
      put_.push_back(slices_of(n, "out_axes", "out_reverse", i - carried, instance.outputs[i]));
  }
  int64_t scratch_bytes() const override { return body_at_ + body_.scratch_bytes(); }
  int64_t packed_bytes() const override { return body_.packed_bytes(); }

  void run(const RunArgs& args) const override {
    recorded(stream_of(args), [&](cudaStream_t stream) { record(args, stream); });
  }

 private:
  struct Taken {
    Slices slices;
    int64_t at;  // in the scratch
  };

  void record(const RunArgs& args, cudaStream_t stream) const {
    auto* const base = static_cast<std::byte*>(args.scratch);
    auto* const state = reinterpret_cast<LoopState*>(base);
    const size_t carried = carried_.count();
    carried_.begin(args.out, args.in.data(), stream);
    const cudaGraphConditionalHandle handle = make_condition(stream);
    PELTON_CUDA(begin_loop(handle, state, taken_[0].slices.count, nullptr, 0, nullptr, stream));
    add_conditional(stream, handle, cudaGraphCondTypeWhile, 1, [&](unsigned, cudaStream_t inner) {
      std::vector<const void*> inputs(args.out.begin(),
                                      args.out.begin() + static_cast<std::ptrdiff_t>(carried));
      for (size_t i = 0; i < taken_.size(); ++i) {
        PELTON_CUDA(take_slice(base + taken_[i].at, args.in[carried + i], taken_[i].slices, state, inner));
        inputs.push_back(base + taken_[i].at);
      }
      for (size_t i = carried + taken_.size(); i < args.in.size(); ++i) inputs.push_back(args.in[i]);
      std::vector<const void*> results = body_.run(inputs, base + body_at_, inner);
      for (size_t i = 0; i < put_.size(); ++i)
        PELTON_CUDA(put_slice(args.out[carried + i], results[carried + i], put_[i], state, inner));
      carried_.set_aside(results, base + kLoopStateBytes, inner);
      carried_.hand_over(args.out, results, inner);
      PELTON_CUDA(next_iteration(handle, state, nullptr, inner));
    });
  }

  Body body_;
  Carried carried_;
  std::vector<Taken> taken_;  // scanned inputs
  std::vector<Slices> put_;   // stacked results
  int64_t body_at_ = 0;
};

}  // namespace

void add_steps(Registry& registry) {
  registry.add(
      {.name = "cuda.steps",
       .ops = {"scan"},
       .refuse = refuse,
       .prepare = [](const Instance& instance, const device::Target& target) -> std::unique_ptr<Kernel> {
         return std::make_unique<ScanKernel>(instance, target);
       },
       .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
