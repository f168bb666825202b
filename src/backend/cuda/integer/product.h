// SPDX-License-Identifier: Apache-2.0
// Convolutions and products of 8-bit integers by cuBLASLt's integer tensor cores: constant weights as rows of
// signed bytes, the windows of the data as such rows too, and what zero points and a bias add to each
// channel.
#pragma once

#include "backend/cuda/matmul_call.h"
#include "backend/cuda/own/host.h"
#include "backend/cuda/own/integer.h"

namespace pelton::backend::cuda {

class IntegerProduct {
 public:
  // `form`: of one group, without addresses. `weights`: [K,C,taps], or [K,C] and with `columns` [C,K].
  // Zero points are one value each; `bias` has K values or none. Null where the library has no way, or the
  // weights less their zero point are no signed bytes.
  static std::unique_ptr<IntegerProduct> make(const IntegerConv& form, const Tensor& weights, bool columns,
                                              int64_t x_zero, int64_t w_zero, const Tensor& bias);
  int64_t scratch_bytes() const { return row_bytes() + sum_bytes() + workspace_bytes(); }
  std::vector<Packed> packed() const;
  void run(const void* x, int32_t* y, void* scratch, cudaStream_t stream) const;

 private:
  IntegerProduct() = default;
  // In this order in scratch.
  int64_t workspace_bytes() const;
  int64_t row_bytes() const;
  int64_t sum_bytes() const;
  int64_t rows() const;  // of data in one product
  IntegerConv form_;
  bool windows_ = true;  // else the data are such rows already
  bool apart_ = false;   // the product has rows beyond the results and lies in scratch
  int images_ = 1;       // at a time
  int width_ = 0;        // bytes of a row
  int8_t pad_ = 0;
  Packed weights_, add_;  // add_: null where it is 0
  std::unique_ptr<MatmulCall> call_;
};

}  // namespace pelton::backend::cuda
