// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cuda/own/cluster.cuh"
#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
// After these.
#include "backend/cuda/own/depthwise_lines.cuh"

namespace pelton::backend::cuda {
namespace {

template <class T, int kStride, int kRows>
cudaError_t start(const DepthwiseBackward& d, const DepthwiseLines& s, float* partial, cudaStream_t stream) {
  const int width = s.lanes * kLineChannels;
  const cudaError_t status =
      launch(&depthwise_lines_kernel<T, kStride, kRows>, dim3((d.c + width - 1) / width, s.blocks),
             dim3(kLineThreads), static_cast<size_t>(depthwise_lines_shared_bytes(s)), stream, d, s, partial);
  if (status != cudaSuccess) return status;
  return depthwise_add_partial(d, partial, s.blocks, stream);
}
template <class T>
cudaError_t start(const DepthwiseBackward& d, const DepthwiseLines& s, float* partial, cudaStream_t stream) {
  if (s.rows == 1)
    return d.stride_h == 1 ? start<T, 1, 1>(d, s, partial, stream) : start<T, 2, 1>(d, s, partial, stream);
  return d.stride_h == 1 ? start<T, 1, 2>(d, s, partial, stream) : start<T, 2, 2>(d, s, partial, stream);
}

int over(int a, int b) {
  return (a + b - 1) / b;
}

}  // namespace

std::vector<DepthwiseLines> depthwise_lines(const DepthwiseBackward& d, int multiprocessors) {
  constexpr int kShortest = 8;  // of segments: each reads two columns of x anew
  std::vector<DepthwiseLines> out;
  if (d.r != 3 || !depthwise_has_window(d, kLineChannels) || d.n == 0 || d.p == 0 || d.q == 0) return out;
  if (int64_t{4} * (d.w + d.s) * d.c >= int64_t{1} << 31) return out;  // bytes of a row stay in 32 bits
  const int pairs = d.c / kLineChannels;
  for (int lanes : {32, 24, 16}) {
    // At most an eighth of the threads lies idle, or it is the least that there are.
    if (lanes > 16 && over(pairs, lanes) * lanes * 8 > pairs * 9) continue;
    for (int rows : {1, 2}) {
      DepthwiseLines s;
      s.lanes = lanes;
      s.rows = rows;
      const int tiles = over(pairs, lanes), teams = kLineThreads / lanes;
      const int64_t stacks = (int64_t{d.n} * over(d.p, rows) + teams - 1) / teams;
      const int64_t slots = std::max(1, multiprocessors * 4 / tiles);
      s.segment = d.q;
      while (stacks * over(d.q, s.segment) < 4 * slots && s.segment >= 2 * kShortest)
        s.segment = (over(s.segment, 2) + 3) / 4 * 4;
      s.segments = over(d.q, s.segment);
      s.items = stacks * s.segments;
      s.blocks = static_cast<int>(std::min(s.items, slots));
      out.push_back(s);
    }
  }
  return out;
}
int64_t depthwise_lines_scratch_bytes(const DepthwiseBackward& d, const DepthwiseLines& s) {
  return int64_t{4} * s.blocks * kLineTaps * d.c;
}
cudaError_t depthwise_weights_by_lines(const DepthwiseBackward& d, const DepthwiseLines& s, float* partial,
                                       cudaStream_t stream) {
  if (d.type == Elem::f16) return start<__half>(d, s, partial, stream);
  if (d.type == Elem::bf16) return start<__nv_bfloat16>(d, s, partial, stream);
  return start<float>(d, s, partial, stream);
}

}  // namespace pelton::backend::cuda
