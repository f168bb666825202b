// SPDX-License-Identifier: Apache-2.0
// if and loop as conditional nodes of the graph that is recorded: which branch runs, and how often a body
// runs, is found on the device without the host. Sizes are fixed; what has others, or holds a node without a
// kernel here, runs on the host.
#include <algorithm>
#include <string_view>

#include "backend/cuda/control/body.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/control.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

constexpr int64_t kStateBytes = 256;
static_assert(sizeof(LoopState) <= kStateBytes);

// A conditional node is only a node of a graph: outside of a recording one is made, played and waited for.
template <class F>
void recorded(cudaStream_t stream, F&& enqueue) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  PELTON_CUDA(cudaStreamIsCapturing(stream, &status));
  if (status != cudaStreamCaptureStatusNone) return enqueue(stream);
  StreamHandle own = make_stream();
  PELTON_CUDA(cudaStreamBeginCapture(own.get(), cudaStreamCaptureModeThreadLocal));
  GraphHandle graph;
  try {
    enqueue(own.get());
  } catch (...) {
    (void)cudaStreamEndCapture(own.get(), graph.out());
    (void)cudaGetLastError();
    throw;
  }
  PELTON_CUDA(cudaStreamEndCapture(own.get(), graph.out()));
  GraphExecHandle ready;
  PELTON_CUDA(cudaGraphInstantiate(ready.out(), graph.get(), 0));
  PELTON_CUDA(cudaGraphLaunch(ready.get(), stream));
  PELTON_CUDA(cudaStreamSynchronize(stream));
}

cudaGraph_t recording_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  PELTON_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  return graph;
}

cudaGraphConditionalHandle make_condition(cudaStream_t stream) {
  cudaGraphConditionalHandle handle{};
  PELTON_CUDA(cudaGraphConditionalHandleCreate(&handle, recording_of(stream), 0, 0));
  return handle;
}

// Kernels that overlap with the one before them do so inside a stream, not inside the body of a condition.
void leave_no_overlap(cudaGraph_t graph) {
  size_t count = 0;
  PELTON_CUDA(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> data(count);
  if (count > 0) PELTON_CUDA(cudaGraphGetEdges(graph, from.data(), to.data(), data.data(), &count));
  for (size_t i = 0; i < count; ++i) {
    if (data[i].type != cudaGraphDependencyTypeProgrammatic) continue;
    PELTON_CUDA(cudaGraphRemoveDependencies(graph, &from[i], &to[i], &data[i], 1));
    PELTON_CUDA(cudaGraphAddDependencies(graph, &from[i], &to[i], nullptr, 1));
  }
}

// Appends a conditional node to what the stream records; fill(i, stream) enqueues body i.
template <class F>
void add_conditional(cudaStream_t stream, cudaGraphConditionalHandle handle,
                     cudaGraphConditionalNodeType type, unsigned bodies, F&& fill) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* before = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  PELTON_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &before, &edges, &count));
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = bodies;
  cudaGraphNode_t node = nullptr;
  PELTON_CUDA(cudaGraphAddNode(&node, graph, before, nullptr, count, &params));
  PELTON_CUDA(
      cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, cudaStreamSetCaptureDependencies));
  for (unsigned i = 0; i < bodies; ++i) {
    StreamHandle inner = make_stream();
    cudaGraph_t body = params.conditional.phGraph_out[i], ended = nullptr;
    PELTON_CUDA(cudaStreamBeginCaptureToGraph(inner.get(), body, nullptr, nullptr, 0,
                                              cudaStreamCaptureModeThreadLocal));
    try {
      fill(i, inner.get());
    } catch (...) {
      (void)cudaStreamEndCapture(inner.get(), &ended);
      (void)cudaGetLastError();
      throw;
    }
    PELTON_CUDA(cudaStreamEndCapture(inner.get(), &ended));
    leave_no_overlap(body);
  }
}

void copy(void* to, const void* from, int64_t bytes, cudaStream_t stream) {
  if (bytes > 0 && to != from)
    PELTON_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream));
}

bool same_form(const ir::Type& a, const ir::Type& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.layout == b.layout;
}

std::string refuse_plain(const ir::Graph& graph, ir::NodeId node) {
  for (ir::ValueId v : graph[node].inputs)
    if (v &&
        (!graph.type(v).is_tensor() || !graph.type(v).layout.is_plain() || !as_dims(graph.type(v).shape)))
      return cat("takes ", graph.type(v).str());
  for (ir::ValueId v : graph[node].outputs)
    if (!graph.type(v).is_tensor() || !graph.type(v).layout.is_plain() || !as_dims(graph.type(v).shape))
      return cat("yields ", graph.type(v).str());
  return {};
}

// --- if

std::string refuse_if(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  if (std::string why = refuse_plain(graph, node); !why.empty()) return why;
  for (const char* branch : {"then", "else"}) {
    const ir::Graph& body = graph[node].get_graph(branch);
    if (std::string why = refuse_body(body, target); !why.empty()) return why;
    for (size_t i = 0; i < graph[node].outputs.size(); ++i)
      if (!same_form(body.type(body.outputs[i]), output_type(graph, node, i)))
        return "has branches that yield different sizes";
  }
  return {};
}

ir::GraphPtr graph_of(const ir::Node& n, std::string_view attr) {
  return std::get<ir::GraphPtr>(n.attr(attr));
}

std::unique_ptr<Kernel> prepare_if(const Instance& instance, const device::Target& target) {
  auto then = std::make_shared<Body>(graph_of(instance.node(), "then"), target, instance.threads),
       otherwise = std::make_shared<Body>(graph_of(instance.node(), "else"), target, instance.threads);
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
  if (std::string why = refuse_plain(graph, node); !why.empty()) return why;
  const ir::Node& n = graph[node];
  if (!n.inputs.empty() && n.inputs[0])
    if (const DType t = input_type(graph, node, 0).dtype; t != DType::i64 && t != DType::i32)
      return cat("has a trip count of type ", name(t));
  const ir::Graph& body = n.get_graph("body");
  if (std::string why = refuse_body(body, target); !why.empty()) return why;
  const auto carried = static_cast<size_t>(n.get_int("carried"));
  for (size_t i = 0; i < carried; ++i)
    if (!same_form(body.type(body.inputs[2 + i]), body.type(body.outputs[1 + i])) ||
        !same_form(body.type(body.inputs[2 + i]), output_type(graph, node, i)))
      return "carries a value of changing size";
  return {};
}

class LoopKernel final : public Kernel {
 public:
  LoopKernel(const Instance& instance, const device::Target& target)
      : body_(graph_of(instance.node(), "body"), target, instance.threads),
        carried_(static_cast<size_t>(instance.node().get_int("carried"))),
        trip_bytes_(instance.has(0) ? bits(instance.inputs[0].dtype) / 8 : 0) {
    for (size_t i = 0; i < carried_; ++i) {
      passed_.push_back(passed_bytes_);
      // A value that an input of the body is may be written over before it is read.
      if (body_.passed_on(1 + i) >= 0) passed_bytes_ += (body_.output_bytes(1 + i) + 255) / 256 * 256;
    }
  }
  int64_t scratch_bytes() const override { return kStateBytes + passed_bytes_ + body_.scratch_bytes(); }
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
    PELTON_CUDA(
        begin_loop(handle, state, operand(0), trip_bytes_, static_cast<const bool*>(operand(1)), stream));
    add_conditional(stream, handle, cudaGraphCondTypeWhile, 1, [&](unsigned, cudaStream_t inner) {
      std::vector<const void*> inputs{&state->iteration, &state->go_on};
      for (size_t i = 0; i < carried_; ++i) inputs.push_back(args.out[i]);
      for (size_t i = 2 + carried_; i < args.in.size(); ++i) inputs.push_back(args.in[i]);
      std::byte* const passed = base + kStateBytes;
      std::vector<const void*> results = body_.run(inputs, passed + passed_bytes_, inner);
      for (size_t i = carried_; i + 1 < results.size(); ++i)
        if (const int64_t bytes = body_.output_bytes(1 + i); bytes > 0)
          PELTON_CUDA(store_row(args.out[i], results[1 + i], bytes, state, inner));
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
}

}  // namespace pelton::backend::cuda
