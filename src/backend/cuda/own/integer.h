// SPDX-License-Identifier: Apache-2.0
// Convolutions, products and pooling of 8-bit integers. Sums have 32 bits, which wrap. Letters as in
// conv/problem.h; three spatial axes, the first of them of size 1 where there are fewer.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace pelton::backend::cuda {

// One 8-bit operand and the zero points that are taken from it.
struct Bytes {
  const void *data = nullptr, *zero = nullptr;  // zero: null for 0
  bool has_sign = true;
};

struct IntegerConv {
  Bytes x, w;                     // w: [K,C/groups,taps]
  bool w_zeros = false;           // one an output channel
  const int32_t* bias = nullptr;  // [K] or null
  int32_t* y = nullptr;
  bool x_last = false, y_last = false;  // channels last
  int n = 0, c = 0, k = 0, groups = 1;
  int in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, low[3] = {};
  int64_t places() const { return int64_t{1} * out[0] * out[1] * out[2]; }
  int taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};
// A thread for each result: takes every form.
cudaError_t integer_conv(const IntegerConv& problem, cudaStream_t stream);

// The windows of images [first, first + count) as rows of `width` signed bytes: taps outside, channels
// inside, zeros behind them. Unsigned data is shifted by 128; what lies outside of an image is `pad`.
cudaError_t integer_windows(const IntegerConv& problem, int first, int count, int width, int8_t pad,
                            int8_t* rows, cudaStream_t stream);
// y = sums + add[channel] for n images of y; the sums may be y, and `add` null for 0.
cudaError_t integer_add(int32_t* y, const int32_t* sums, const int32_t* add, int n, int k, int64_t places,
                        bool last, cudaStream_t stream);

// The largest of each window; `x` and `y` have one layout. The lowest number where a window holds nothing.
cudaError_t integer_max_pool(const IntegerConv& problem, void* y, cudaStream_t stream);

// y[batch,m,n] of strided operands: takes every form. The zero points of a have one a row where a_zero_row is
// not 0, those of b one a column; they may differ by batch too.
struct IntegerMatmul {
  static constexpr int kBatchDims = 6;
  Bytes a, b;
  int32_t* y = nullptr;  // dense
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_k = 0, b_k = 0, b_column = 0;  // strides
  int64_t a_zero_row = 0, b_zero_column = 0;
  int batch_dims = 0;
  int64_t batch[kBatchDims] = {}, a_batch[kBatchDims] = {}, b_batch[kBatchDims] = {};
  int64_t a_zero_batch[kBatchDims] = {}, b_zero_batch[kBatchDims] = {};
};
cudaError_t integer_matmul(const IntegerMatmul& problem, cudaStream_t stream);

}  // namespace pelton::backend::cuda
