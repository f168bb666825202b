// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/control/conditional.h"

#include <string_view>

#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

cudaGraph_t recording_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  PELTON_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  return graph;
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

}  // namespace

void recorded(cudaStream_t stream, const std::function<void(cudaStream_t)>& enqueue) {
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

cudaGraphConditionalHandle make_condition(cudaStream_t stream) {
  cudaGraphConditionalHandle handle{};
  PELTON_CUDA(cudaGraphConditionalHandleCreate(&handle, recording_of(stream), 0, 0));
  return handle;
}

void add_conditional(cudaStream_t stream, cudaGraphConditionalHandle handle,
                     cudaGraphConditionalNodeType type, unsigned bodies,
                     const std::function<void(unsigned, cudaStream_t)>& fill) {
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

std::string refuse_plain(const ir::Graph& graph, ir::NodeId node, const Symbols& symbols) {
  auto fits = [&](const ir::Type& t) {
    return t.is_tensor() && t.ranked && !is_sub_byte(t.dtype) && t.layout.is_plain() &&
           known(t.shape, symbols);
  };
  for (ir::ValueId v : graph[node].inputs)
    if (v && !fits(graph.type(v))) return cat("takes ", graph.type(v).str());
  for (ir::ValueId v : graph[node].outputs)
    if (!fits(graph.type(v))) return cat("yields ", graph.type(v).str());
  return {};
}

ir::GraphPtr body_of(const Instance& instance, std::string_view attr) {
  return at_sizes(instance.node().get_graph(attr), instance.symbols);
}

}  // namespace pelton::backend::cuda
