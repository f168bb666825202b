// SPDX-License-Identifier: Apache-2.0
// Products whose rows have a length that is no multiple of 16 bytes, which keeps the library from its fast
// kernels. Where they are as long as a vocabulary there are two ways around it, found by timing:
// - interleaved: rows that lie 16 bytes' worth of elements apart are a matrix whose rows keep their
// alignment.
//   A batch of products, one for each of these, writes the result in place but for a few columns at the
//   edges.
// - stretches: the result comes out with longer rows, a stretch of them at a time, and is made dense; so is a
//   constant B.
#pragma once

#include "backend/cuda/matmul_call.h"
#include "backend/cuda/memory.h"
#include "tensor/tensor.h"

namespace pelton::backend::cuda {

// The batch of products of the first way: one for each row of the first 16 bytes' worth of elements, of rows
// as long as a multiple of 16 bytes. Column `stride_d - n` times j is the first of row j.
MatmulProblem interleaved_part(const MatmulProblem& problem);

class RaggedProduct {
 public:
  // Null where rows are no hindrance, or the library is faster as it is. `b` is undefined unless constant.
  static std::unique_ptr<RaggedProduct> make(const MatmulProblem& problem, const Tensor& b);
  // Each by itself; null where it does not apply.
  static std::unique_ptr<RaggedProduct> interleaved(const MatmulProblem& problem, const Tensor& b);
  static std::unique_ptr<RaggedProduct> stretches(const MatmulProblem& problem, const Tensor& b);
  virtual ~RaggedProduct() = default;
  virtual int64_t scratch_bytes() const = 0;
  const DeviceBuffer* packed_b() const { return b_.get(); }  // null: run() takes B as it comes
  virtual void run(const void* a, const void* b, void* d, const void* bias, void* scratch,
                   cudaStream_t stream) const = 0;

 protected:
  explicit RaggedProduct(const MatmulProblem& problem) : p_(problem) {}
  MatmulProblem p_;
  std::shared_ptr<const DeviceBuffer> b_;
};

}  // namespace pelton::backend::cuda
