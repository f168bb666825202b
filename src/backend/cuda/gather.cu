// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/gather.h"

namespace pelton::backend::cuda {
namespace {

// One thread a unit of T; `width` units a row.
template <class T, class I>
__global__ void __launch_bounds__(256)
    gather(const T* __restrict__ x, const I* __restrict__ index, T* __restrict__ out, int64_t total,
           int64_t axis, int64_t count, int64_t width, uint32_t* fault) {
  for (int64_t t = blockIdx.x * int64_t{256} + threadIdx.x; t < total; t += int64_t{256} * gridDim.x) {
    int64_t row = t / width, k = t - row * width, outer = row / count, i = row - outer * count;
    int64_t at = index[i];
    if (at < 0) at += axis;
    T value;
    if (at >= 0 && at < axis) {
      value = x[(outer * axis + at) * width + k];
    } else {
      memset(&value, 0xFF, sizeof value);
      if (fault) *static_cast<volatile uint32_t*>(fault) = 1;
    }
    out[t] = value;
  }
}

template <class T>
void run(const void* x, const void* index, bool index64, void* out, const GatherSizes& s, uint32_t* fault,
         cudaStream_t stream) {
  int64_t width = s.bytes / static_cast<int64_t>(sizeof(T)), total = s.outer * s.count * width;
  if (total == 0) return;
  auto blocks = static_cast<unsigned>((total + 255) / 256 < 8192 ? (total + 255) / 256 : 8192);
  if (index64)
    gather<<<blocks, 256, 0, stream>>>(static_cast<const T*>(x), static_cast<const long long*>(index),
                                       static_cast<T*>(out), total, s.axis, s.count, width, fault);
  else
    gather<<<blocks, 256, 0, stream>>>(static_cast<const T*>(x), static_cast<const int*>(index),
                                       static_cast<T*>(out), total, s.axis, s.count, width, fault);
}

}  // namespace

void launch_gather(const void* x, const void* index, bool index64, void* out, const GatherSizes& s,
                   uint32_t* fault, cudaStream_t stream) {
  if (s.bytes % 16 == 0)
    run<int4>(x, index, index64, out, s, fault, stream);
  else if (s.bytes % 8 == 0)
    run<int2>(x, index, index64, out, s, fault, stream);
  else if (s.bytes % 4 == 0)
    run<int>(x, index, index64, out, s, fault, stream);
  else if (s.bytes % 2 == 0)
    run<short>(x, index, index64, out, s, fault, stream);
  else
    run<char>(x, index, index64, out, s, fault, stream);
}

}  // namespace pelton::backend::cuda
