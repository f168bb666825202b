// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/gather.h"

#include "backend/cuda/handles.h"
#include "backend/cuda/implementations.h"
#include "device/fault.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  const ir::Node& n = graph[id];
  const ir::Type &x = graph.type(n.inputs[0]), &index = graph.type(n.inputs[1]);
  if (!x.layout.is_plain() || !index.layout.is_plain() || !graph.type(n.outputs[0]).layout.is_plain())
    return "needs plain operands";
  if (bits(x.dtype) % 8 != 0) return cat("packed elements of ", name(x.dtype));
  if (index.dtype != DType::i64 && index.dtype != DType::i32) return cat("indices of ", name(index.dtype));
  return "";
}

class GatherKernel : public Kernel {
 public:
  GatherKernel(GatherSizes sizes, bool index64) : sizes_(sizes), index64_(index64) {}
  void run(const RunArgs& args) const override {
    launch_gather(args.in[0], args.in[1], index64_, args.out[0], sizes_, device::fault_word(),
                  static_cast<cudaStream_t>(args.stream));
    PELTON_CUDA(cudaGetLastError());
  }

 private:
  GatherSizes sizes_;
  bool index64_;
};

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &index = instance.inputs[1];
  auto rank = static_cast<int64_t>(x.dims.size());
  int64_t axis = instance.node().get_int("axis");
  auto a = static_cast<size_t>(axis < 0 ? axis + rank : axis);
  GatherSizes s{1, x.dims[a], index.count(), bits(x.dtype) / 8};
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (d < a) s.outer *= x.dims[d];
    if (d > a) s.bytes *= x.dims[d];
  }
  return std::make_unique<GatherKernel>(s, index.dtype == DType::i64);
}

}  // namespace

void add_gather(Registry& registry) {
  Implementation i;
  i.name = "cuda.gather";
  i.ops = {"gather"};
  i.refuse = refuse;
  i.prepare = prepare;
  i.device = device::Kind::cuda;
  registry.add(std::move(i));
}

}  // namespace pelton::backend::cuda
