// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph of operations through its back-end interface: tensors, operations, and the plans that its
// heuristics offer. Whether cuDNN takes a graph shows only when plans are asked for; none is no error.
#pragma once

#include <cudnn.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/conv/cudnn_machine.h"
#include "tensor/dtype.h"

namespace pelton::backend::cuda {

// One way to run a graph. Any thread and stream may run it.
class CudnnPlan {
 public:
  // `key`: under which it is kept; empty: it is.
  CudnnPlan(DescriptorHandle plan, std::vector<int64_t> ids, std::string name, std::string key);
  int64_t workspace_bytes() const { return workspace_bytes_; }
  const std::string& name() const { return name_; }  // "3": its place among the heuristics' proposals
  // `pointers`: one for each id of the graph's real tensors, in the order they were made.
  void run(const std::vector<void*>& pointers, void* workspace, cudaStream_t stream) const;
  // As text, with the kernel that was compiled for it, so that it need not be made again (kept.h).
  void keep() const;

 private:
  DescriptorHandle plan_;
  std::vector<int64_t> ids_;
  int64_t workspace_bytes_ = 0;
  std::string name_, key_;
};

struct CudnnPlanWishes {
  std::string only;  // makes none but the plan of this name; empty: the first `count`
  size_t count = 4;
  bool tensor_cores = true;          // with f32 operands they round them to TF32
  bool compiled_at_run_time = true;  // engines that compile a kernel when the plan is made (a second or more)
};

// Names of plans are below this.
inline constexpr int kCudnnProposals = 32;

class CudnnGraph {
 public:
  explicit CudnnGraph(CudnnMachine machine) : machine_(std::move(machine)) {}

  using TensorRef = int;  // index; -1: none
  // Real tensors take pointers at each run; virtual ones live inside a plan. The first kind must be made in
  // the order in which pointers are given.
  TensorRef tensor(DType type, const std::vector<int64_t>& dims, const std::vector<int64_t>& strides,
                   bool real = true);
  struct Window {
    std::vector<int64_t> strides, dilations, low, high;
  };
  void convolution(TensorRef x, TensorRef w, TensorRef y, const Window& window, bool transposed);
  // dw from the gradient g of the result and the data x.
  void backward_weights(TensorRef g, TensorRef x, TensorRef dw, const Window& window);
  // b may be absent. `slope`: of relu below 0.
  void pointwise(cudnnPointwiseMode_t mode, TensorRef x, TensorRef b, TensorRef y, double slope = 0);
  // A real f32 tensor of four dims of 1 whose pointer at each run is to host memory.
  TensorRef host_number();
  void matmul(TensorRef a, TensorRef b, TensorRef c);                // of the last two dims
  void reduce(cudnnReduceTensorOp_t how, TensorRef x, TensorRef y);  // the dims that are 1 in y
  void reshape(TensorRef x, TensorRef y);
  void index(TensorRef x, int64_t axis, TensorRef y);                   // y: places along an axis of x, i32
  void at_least(TensorRef x, TensorRef b, TensorRef y);                 // y = x >= b
  void select(TensorRef x, TensorRef b, TensorRef where, TensorRef y);  // y = where ? x : b

  // Best first by cuDNN's estimate; empty if it does not take the graph. Plans that are kept are not made
  // again.
  using Plans = std::vector<std::shared_ptr<const CudnnPlan>>;
  Plans plans(const CudnnPlanWishes& wishes);
  // The same for a GPU that is not here, kept for the process that has it; how many. Without a driver's
  // library those are left out that cuDNN compiles a kernel for.
  size_t keep_plans(const CudnnPlanWishes& wishes);

 private:
  struct Descriptor;
  cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type);
  bool set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           int64_t count, const void* values);
  void finalize(cudnnBackendDescriptor_t d);
  cudnnBackendDescriptor_t convolution_of(const Window& window);
  struct Point {  // of a pointwise operation
    TensorRef x, b, where, y;
    double slope = 0;
    std::optional<int64_t> axis;
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  };
  void point(cudnnPointwiseMode_t mode, const Point& p);
  TensorRef tensor(cudnnDataType_t type, const std::vector<int64_t>& dims,
                   const std::vector<int64_t>& strides, bool real, bool on_host);
  cudnnBackendDescriptor_t at(TensorRef t) const { return tensors_[static_cast<size_t>(t)]; }
  std::string key_of(const CudnnPlanWishes& wishes, const std::string& plan) const;
  std::shared_ptr<const CudnnPlan> kept_plan(const CudnnPlanWishes& wishes, const std::string& name) const;
  Plans kept_plans(const CudnnPlanWishes& wishes) const;
  Plans made_plans(const CudnnPlanWishes& wishes);

  CudnnMachine machine_;
  bool ok_ = true;    // every call so far worked
  std::string text_;  // what the graph is, for keys
  std::vector<DescriptorHandle> owned_;
  std::vector<cudnnBackendDescriptor_t> tensors_, operations_;
  std::vector<int64_t> ids_;  // of real tensors
};

}  // namespace pelton::backend::cuda
