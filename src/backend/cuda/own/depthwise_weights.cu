// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cuda/own/cluster.cuh"
#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/mma.cuh"
// After these.
#include "backend/cuda/own/depthwise_weights.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kSharedBytes = 220 * 1024;  // of a block, at most
constexpr int kStageBytes = 36 * 1024;    // three blocks of a multiprocessor have room for two each
constexpr int kPortable = 8;              // blocks of a cluster that every GPU runs

template <class T, int V, int kWindow, int kStride, bool kCluster>
cudaError_t start(const DepthwiseBackward& d, const DepthwiseShares& s, float* partial, cudaStream_t stream) {
  auto* kernel = &depthwise_weights_kernel<T, V, kWindow, kStride, kCluster>;
  cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (status == cudaSuccess && kCluster && s.blocks > kPortable)
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (status != cudaSuccess) return status;
  const int width = s.lanes * V, bytes = DepthwiseTile(d, s).shared_bytes();
  const dim3 grid((d.c + width - 1) / width, s.blocks);
  if (kCluster) return launch_columns(kernel, grid, dim3(kDepthwiseThreads), bytes, stream, d, s, partial);
  status = launch(kernel, grid, dim3(kDepthwiseThreads), bytes, stream, d, s, partial);
  if (status != cudaSuccess) return status;
  return depthwise_add_partial(d, partial, s.blocks, stream);
}
template <class T, int V, int kWindow, int kStride>
cudaError_t start(const DepthwiseBackward& d, const DepthwiseShares& s, float* partial, cudaStream_t stream) {
  return s.cluster ? start<T, V, kWindow, kStride, true>(d, s, partial, stream)
                   : start<T, V, kWindow, kStride, false>(d, s, partial, stream);
}
template <class T, int V>
cudaError_t start(const DepthwiseBackward& d, const DepthwiseShares& s, float* partial, cudaStream_t stream) {
  if (d.r == 3 && d.stride_h == 1) return start<T, V, 3, 1>(d, s, partial, stream);
  if (d.r == 3) return start<T, V, 3, 2>(d, s, partial, stream);
  if (d.stride_h == 1) return start<T, V, 5, 1>(d, s, partial, stream);
  return start<T, V, 5, 2>(d, s, partial, stream);
}

int over(int a, int b) {
  return (a + b - 1) / b;
}

}  // namespace

std::vector<DepthwiseShares> depthwise_weights_shares(const DepthwiseBackward& d, int multiprocessors) {
  constexpr int kFewestStages = 16, kLongest = 28, kShortest = 4;
  const int v = d.type == Elem::f32 ? 1 : 2;
  std::vector<DepthwiseShares> out;
  constexpr int kWidest = 1 << 20;  // bytes of a row stay in 32 bits
  if (!depthwise_has_window(d, 4 * v) || d.n == 0 || d.p == 0 || d.q == 0 || d.q > kWidest) return out;
  for (int lanes : {32, 16}) {
    if (lanes == 32 && lanes / 2 * v >= d.c) continue;  // half of it would lie idle
    DepthwiseShares s;
    s.lanes = lanes;
    auto fits = [&](int images, int band) {
      const int64_t x_rows = int64_t{band - 1} * d.stride_h + d.r,
                    columns = int64_t{d.q - 1} * d.stride_w + d.s;
      return images * (x_rows * columns + int64_t{band} * d.q) * lanes * 4 <= kStageBytes;
    };
    s.band = d.p;
    while (s.band > 1 && !fits(1, s.band)) --s.band;
    s.bands = over(d.p, s.band);
    s.band = over(d.p, s.bands);
    while (s.bands == 1 && d.n / (s.images + 1) >= kFewestStages && fits(s.images + 1, s.band)) ++s.images;
    s.stages = over(d.n, s.images) * s.bands;
    s.segment = std::min(d.q, kLongest);
    while (s.images * s.band * over(d.q, s.segment) < kDepthwiseThreads / lanes && s.segment > kShortest)
      s.segment = over(s.segment, 2);
    if (DepthwiseTile(d, s).shared_bytes() > kSharedBytes) continue;
    for (int blocks : {16, 8}) {
      if (blocks > s.stages) continue;
      s.cluster = true;
      s.blocks = blocks;
      out.push_back(s);
    }
    s.cluster = false;
    s.blocks = std::clamp(multiprocessors * 3 / over(d.c, lanes * v), 1, s.stages);
    out.push_back(s);
  }
  return out;
}
int64_t depthwise_weights_scratch_bytes(const DepthwiseBackward& d, const DepthwiseShares& s) {
  return s.cluster ? 0 : int64_t{4} * s.blocks * d.r * d.s * d.c;
}
cudaError_t depthwise_weights(const DepthwiseBackward& d, const DepthwiseShares& s, float* partial,
                              cudaStream_t stream) {
  if (d.type == Elem::f16) return start<__half, 2>(d, s, partial, stream);
  if (d.type == Elem::bf16) return start<__nv_bfloat16, 2>(d, s, partial, stream);
  return start<float, 1>(d, s, partial, stream);
}

}  // namespace pelton::backend::cuda
