// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "backend/cuda/own/cluster.cuh"
#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/mma.cuh"
// After these.
#include "backend/cuda/own/batch_norm_cluster.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kSharedBytes = 220 * 1024;  // of a block, at most
constexpr int kPortable = 8;              // blocks of a cluster that every GPU runs

template <class T, int V, bool kBackward>
cudaError_t start(const BatchNorm& d, const NormCluster& s, cudaStream_t stream) {
  const ClusterPlan<V> plan(d, s, kBackward, sizeof(T));
  auto* kernel = &norm_cluster_kernel<T, V, kBackward, NormEnd::bounds>;
  if constexpr (!kBackward) {
    if (end_of(d) == NormEnd::steps) kernel = &norm_cluster_kernel<T, V, false, NormEnd::steps>;
    if (end_of(d) == NormEnd::sum_and_bounds)
      kernel = &norm_cluster_kernel<T, V, false, NormEnd::sum_and_bounds>;
  }
  cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  if (status == cudaSuccess && s.blocks > kPortable)
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (status != cudaSuccess) return status;
  return launch_columns(kernel, dim3((d.c + plan.width - 1) / plan.width, s.blocks), dim3(plan.kThreads),
                        plan.bytes, stream, d, s);
}
template <bool kBackward>
cudaError_t start_type(const BatchNorm& d, const NormCluster& s, cudaStream_t stream) {
  if (d.type == Elem::f16) return start<__half, 8, kBackward>(d, s, stream);
  if (d.type == Elem::bf16) return start<__nv_bfloat16, 8, kBackward>(d, s, stream);
  return start<float, 4, kBackward>(d, s, stream);
}

}  // namespace

std::vector<NormCluster> batch_norm_clusters(const BatchNorm& d, bool backward) {
  const int v = d.type == Elem::f32 ? 4 : 8;
  std::vector<NormCluster> out;
  if (!d.channels_last || d.c % v != 0) return out;
  for (int blocks : {8, 16})
    for (int lanes : {8, 4, 2}) {
      const NormCluster s{lanes, blocks};
      if (lanes > 2 && lanes / 2 * v >= d.c) continue;  // half of it would lie idle
      const int64_t rows_each = (d.n * d.places + blocks - 1) / blocks;
      if (rows_each * lanes * 16 * (backward ? 2 : 1) > kSharedBytes) continue;
      const int bytes =
          v == 4 ? ClusterPlan<4>(d, s, backward, 4).bytes : ClusterPlan<8>(d, s, backward, 2).bytes;
      if (bytes <= kSharedBytes) out.push_back(s);
    }
  return out;
}
cudaError_t batch_norm_train(const BatchNorm& d, const NormCluster& s, cudaStream_t stream) {
  return start_type<false>(started(d), s, stream);
}
cudaError_t batch_norm_backward(const BatchNorm& d, const NormCluster& s, cudaStream_t stream) {
  return start_type<true>(started(d), s, stream);
}

}  // namespace pelton::backend::cuda
