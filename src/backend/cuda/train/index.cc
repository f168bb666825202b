// SPDX-License-Identifier: Apache-2.0
// gather_elements, scatter_nd and scatter_elements; also the gradients of gathers, which are scattered sums.
#include "backend/cuda/own/index.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/own/host.h"
#include "device/fault.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

std::string refuse_index(const ir::Type& index) {
  if (index.dtype != DType::i64 && index.dtype != DType::i32) return cat("indices of ", name(index.dtype));
  return {};
}

std::string refuse_gather(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  if (input_type(graph, id, 0).rank() > kIndexRank) return "has too many dims";
  return refuse_index(input_type(graph, id, 1));
}

size_t axis_of(const ir::Node& n, size_t rank) {
  const int64_t axis = n.get_int("axis");
  return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
}

std::unique_ptr<Kernel> prepare_gather(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &index = instance.inputs[1];
  GatherElements g;
  g.index64 = index.dtype == DType::i64;
  g.element_bytes = bits(x.dtype) / 8;
  g.rank = static_cast<int>(x.dims.size());
  g.axis = static_cast<int>(axis_of(instance.node(), x.dims.size()));
  const Dims strides = row_major_strides(x.dims);
  for (size_t d = 0; d < x.dims.size(); ++d) {
    g.dims[d] = index.dims[d];
    g.strides[d] = strides[d];
  }
  g.size = x.dims[static_cast<size_t>(g.axis)];
  return make_kernel([g](const RunArgs& args) {
    GatherElements e = g;
    e.x = args.in[0];
    e.index = args.in[1];
    e.y = args.out[0];
    e.fault = device::fault_word();
    PELTON_CUDA(gather_elements(e, stream_of(args)));
  });
}

std::string refuse_scatter(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const ir::Node& n = graph[id];
  const ir::Type& x = input_type(graph, id, 0);
  const std::string& reduction = n.get_text("reduction");
  if (reduction != "none" && reduction != "add") return cat("does not combine by ", reduction);
  if (reduction == "add" && !elem_of(x.dtype)) return cat("adds up f32, f16 or bf16, not ", name(x.dtype));
  if (x.rank() > kIndexRank) return "has too many dims";
  if (n.is("scatter_nd") && !input_type(graph, id, 1).shape.back().is_const())
    return "needs tuples of a known length";
  return refuse_index(input_type(graph, id, 1));
}

std::unique_ptr<Kernel> prepare_scatter(const Instance& instance, const device::Target&) {
  const ir::Node& n = instance.node();
  const TensorSpec &x = instance.inputs[0], &index = instance.inputs[1], &updates = instance.inputs[2];
  Scatter g;
  g.index64 = index.dtype == DType::i64;
  g.add = n.get_text("reduction") == "add";
  if (g.add) g.type = elem(x.dtype);
  g.element_bytes = bits(x.dtype) / 8;
  g.y_count = x.count();
  g.elements = n.is("scatter_elements");
  g.rank = static_cast<int>(x.dims.size());
  g.slice = 1;
  Dims slices = x.dims;  // the axes that targets count over
  if (g.elements) {
    g.axis = static_cast<int>(axis_of(n, x.dims.size()));
    g.count = updates.count();
    for (size_t d = 0; d < updates.dims.size(); ++d) g.dims[d] = updates.dims[d];
  } else {
    g.length = static_cast<int>(index.dims.back());
    slices.resize(static_cast<size_t>(g.length));
    for (size_t d = slices.size(); d < x.dims.size(); ++d) g.slice *= x.dims[d];
    g.count = element_count(Dims(index.dims.begin(), index.dims.end() - 1));
  }
  const Dims strides = row_major_strides(slices);
  for (size_t d = 0; d < slices.size(); ++d) {
    g.sizes[d] = slices[d];
    g.strides[d] = strides[d];
  }
  if (g.y_count >= (int64_t{1} << 31) * std::max<int64_t>(1, g.slice) || g.count >= int64_t{1} << 31)
    fail(ErrorCode::bad_shape, cat("scatters ", g.count, " slices into ", g.y_count / g.slice), "",
         "use fewer than 2147483648 of each");
  // Zeros need not be read.
  bool zeros = instance.constants[0].defined();
  if (zeros) {
    const Tensor& t = instance.constants[0];
    const auto* bytes = static_cast<const char*>(t.data());
    zeros = std::all_of(bytes, bytes + t.bytes(), [](char b) { return b == 0; });
  }
  KernelNeeds needs;
  needs.scratch_bytes = scatter_scratch_bytes(g);
  if (needs.scratch_bytes < 0) PELTON_CUDA(cudaGetLastError());
  if (zeros) needs.unread.push_back(0);
  return make_kernel(
      [g, zeros](const RunArgs& args) {
        Scatter s = g;
        if (!zeros) s.data = args.in[0];
        s.index = args.in[1];
        s.updates = args.in[2];
        s.y = args.out[0];
        s.scratch = args.scratch;
        s.fault = device::fault_word();
        PELTON_CUDA(scatter(s, stream_of(args)));
      },
      std::move(needs));
}

}  // namespace

void add_index(Registry& registry) {
  registry.add({.name = "cuda.gather_elements",
                .ops = {"gather_elements"},
                .refuse = refuse_gather,
                .prepare = prepare_gather,
                .device = device::Kind::cuda});
  registry.add({.name = "cuda.scatter",
                .ops = {"scatter_nd", "scatter_elements"},
                .refuse = refuse_scatter,
                .prepare = prepare_scatter,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
