// SPDX-License-Identifier: Apache-2.0
// Products whose rows have a length that is no multiple of 16 bytes, which keeps the library from its fast
// kernels. Where they are as long as a vocabulary, a constant B is packed with longer rows, and the result
// comes out with longer rows, a stretch of them at a time so that they stay in the cache, and is made dense.
#pragma once

#include "backend/cuda/matmul_call.h"
#include "backend/cuda/memory.h"
#include "tensor/tensor.h"

namespace pelton::backend::cuda {

class RaggedProduct {
 public:
  // Null where rows are no hindrance, or nothing can be done about them. `b` is undefined unless constant.
  static std::unique_ptr<RaggedProduct> make(const MatmulProblem& problem, const Tensor& b);
  int64_t scratch_bytes() const;
  const DeviceBuffer* packed_b() const { return b_.get(); }  // null: run() takes B as it comes
  void run(const void* a, const void* b, void* d, const void* bias, void* scratch, cudaStream_t stream) const;

 private:
  explicit RaggedProduct(const MatmulProblem& problem) : p_(problem) {}
  int64_t workspace_bytes() const;
  MatmulProblem p_;
  std::shared_ptr<const DeviceBuffer> b_;
  int64_t stretch_ = 0;  // rows at a time
  std::unique_ptr<MatmulCall> call_,
      last_;  // the second for the rows of the last stretch, if there are fewer
};

}  // namespace pelton::backend::cuda
