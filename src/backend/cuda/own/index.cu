// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/index.h"

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "backend/cuda/aligned.h"
#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kChunk = 32;  // sorted updates a block of the sums

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}
__device__ __forceinline__ int64_t index_at(const void* index, bool wide, int64_t i) {
  return wide ? static_cast<const int64_t*>(index)[i] : static_cast<const int32_t*>(index)[i];
}
__device__ __forceinline__ void report(uint32_t* fault) {
  if (fault) *static_cast<volatile uint32_t*>(fault) = 1;
}

template <class T>
__global__ void __launch_bounds__(kThreads) gather_kernel(const GatherElements g, int64_t total) {
  let_next_start();
  inputs_ready();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  int64_t rest = i, at = 0, picked = index_at(g.index, g.index64, i);
  if (picked < 0) picked += g.size;
  if (picked < 0 || picked >= g.size) {
    report(g.fault);
    picked = 0;
    if (g.size == 0) return;
  }
  for (int d = g.rank; d-- > 0;) {
    const int64_t outer = rest / g.dims[d];
    at += (d == g.axis ? picked : rest - outer * g.dims[d]) * g.strides[d];
    rest = outer;
  }
  static_cast<T*>(g.y)[i] = static_cast<const T*>(g.x)[at];
}

// Targets behind the last slice are those of faults; they sort to the end and are left out.
__global__ void __launch_bounds__(kThreads)
    target_kernel(const Scatter s, uint32_t slices, uint32_t* targets, uint32_t* places) {
  let_next_start();
  inputs_ready();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.count) return;
  int64_t target = 0;
  bool inside = true;
  if (s.elements) {
    int64_t rest = i;
    for (int d = s.rank; d-- > 0;) {
      const int64_t outer = rest / s.dims[d];
      int64_t at = rest - outer * s.dims[d];
      if (d == s.axis) {
        at = index_at(s.index, s.index64, i);
        if (at < 0) at += s.sizes[d];
        inside &= at >= 0 && at < s.sizes[d];
      }
      target += at * s.strides[d];
      rest = outer;
    }
  } else {
    for (int d = 0; d < s.length; ++d) {
      int64_t at = index_at(s.index, s.index64, i * s.length + d);
      if (at < 0) at += s.sizes[d];
      inside &= at >= 0 && at < s.sizes[d];
      target += at * s.strides[d];
    }
  }
  if (!inside) report(s.fault);
  targets[i] = inside ? static_cast<uint32_t>(target) : slices;
  places[i] = static_cast<uint32_t>(i);
}

// The last update of each target, by units of T.
template <class T>
__global__ void __launch_bounds__(kThreads) last_kernel(const Scatter s, int64_t width, uint32_t slices,
                                                        const uint32_t* targets, const uint32_t* places) {
  let_next_start();
  inputs_ready();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.count * width) return;
  const int64_t at = i / width, unit = i - at * width;
  const uint32_t target = targets[at];
  if (target >= slices || (at + 1 < s.count && targets[at + 1] == target)) return;
  static_cast<T*>(s.y)[target * width + unit] = static_cast<const T*>(s.updates)[places[at] * width + unit];
}

// Sums of runs of equal targets inside a chunk of the sorted updates. A run that a chunk shares with another
// one leaves its part in partial[chunk][2][slice]: the first run in 0, any other (the last) in 1. Blocks:
// [chunks, stretches of the slice from `stretch` on]; a
// thread takes V elements.
template <class T, int V>
__global__ void __launch_bounds__(128) sum_kernel(const Scatter s, uint32_t slices, const uint32_t* targets,
                                                  const uint32_t* places, float* partial, int64_t stretch) {
  let_next_start();
  inputs_ready();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kChunk;
  const int64_t last = min(first + kChunk, s.count);
  const int64_t at = ((stretch + blockIdx.y) * 128 + threadIdx.x) * V;
  if (at >= s.slice) return;
  const T* const updates = static_cast<const T*>(s.updates) + at;
  T* const y = static_cast<T*>(s.y) + at;
  float sum[V] = {};
  int64_t begin = first;
  uint32_t target = targets[first];
  for (int64_t i = first; i < last; ++i) {
    float v[V];
    load_v<V>(updates + static_cast<int64_t>(places[i]) * s.slice, v);
#pragma unroll
    for (int e = 0; e < V; ++e) sum[e] += v[e];
    const uint32_t next = i + 1 < s.count ? targets[i + 1] : ~target;
    if (next == target && i + 1 < last) continue;
    const bool continues = i + 1 == last && next == target;
    const bool continued = begin == first && first > 0 && targets[first - 1] == target;
    if (target < slices) {
      if (continues || continued) {
        float* const part =
            partial + (static_cast<int64_t>(blockIdx.x) * 2 + (begin == first ? 0 : 1)) * s.slice;
        store_v<V>(part + at, sum);
      } else {
        float old[V];
        load_v<V>(y + static_cast<int64_t>(target) * s.slice, old);
#pragma unroll
        for (int e = 0; e < V; ++e) sum[e] += old[e];
        store_v<V>(y + static_cast<int64_t>(target) * s.slice, sum);
      }
    }
#pragma unroll
    for (int e = 0; e < V; ++e) sum[e] = 0;
    begin = i + 1;
    target = next;
  }
}

// A block a chunk in which a run begins that goes on into the next: adds its parts in order.
template <class T, int V>
__global__ void __launch_bounds__(128) join_kernel(const Scatter s, uint32_t slices, const uint32_t* targets,
                                                   const float* partial, int64_t stretch) {
  let_next_start();
  inputs_ready();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kChunk, next = first + kChunk;
  const int64_t at = ((stretch + blockIdx.y) * 128 + threadIdx.x) * V;
  if (next >= s.count || at >= s.slice) return;
  const uint32_t target = targets[next];
  if (target >= slices || targets[next - 1] != target) return;
  const bool whole = targets[first] == target;                     // the run fills the chunk
  if (whole && first > 0 && targets[first - 1] == target) return;  // it begins further in front
  float sum[V];
  load_v<V>(partial + (static_cast<int64_t>(blockIdx.x) * 2 + (whole ? 0 : 1)) * s.slice + at, sum);
  for (int64_t c = blockIdx.x + 1; c * kChunk < s.count && targets[c * kChunk] == target; ++c) {
    float v[V];
    load_v<V>(partial + c * 2 * s.slice + at, v);
#pragma unroll
    for (int e = 0; e < V; ++e) sum[e] += v[e];
  }
  T* const y = static_cast<T*>(s.y) + static_cast<int64_t>(target) * s.slice + at;
  float old[V];
  load_v<V>(y, old);
#pragma unroll
  for (int e = 0; e < V; ++e) sum[e] += old[e];
  store_v<V>(y, sum);
}

template <class T>
cudaError_t start_gather(const GatherElements& g, int64_t total, cudaStream_t stream) {
  return launch(&gather_kernel<T>, dim3(blocks_for(total)), dim3(kThreads), 0, stream, g, total);
}

int sort_bits(int64_t slices) {
  int bits = 1;
  while ((int64_t{1} << bits) <= slices) ++bits;
  return bits;
}
cudaError_t sort(const Scatter& s, void* temporary, size_t& bytes, uint32_t* const (&pairs)[4],
                 cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(temporary, bytes, pairs[0], pairs[1], pairs[2], pairs[3],
                                         static_cast<int>(s.count), 0, sort_bits(s.y_count / s.slice),
                                         stream);
}
int64_t sort_bytes(const Scatter& s) {
  size_t bytes = 0;
  uint32_t* const none[4] = {};
  return sort(s, nullptr, bytes, none, nullptr) == cudaSuccess ? static_cast<int64_t>(bytes) : -1;
}
int64_t chunks_of(const Scatter& s) {
  return (s.count + kChunk - 1) / kChunk;
}

template <class T>
cudaError_t start_last(const Scatter& s, uint32_t slices, const uint32_t* targets, const uint32_t* places,
                       cudaStream_t stream) {
  const int64_t width = s.slice * s.element_bytes / static_cast<int64_t>(sizeof(T));
  return launch(&last_kernel<T>, dim3(blocks_for(s.count * width)), dim3(kThreads), 0, stream, s, width,
                slices, targets, places);
}

template <class T, int V>
cudaError_t start_sum(const Scatter& s, uint32_t slices, const uint32_t* targets, const uint32_t* places,
                      float* partial, cudaStream_t stream) {
  constexpr int64_t kMostRows = 65535;  // of a grid
  const int64_t stretches = (s.slice + 128 * V - 1) / (128 * V);
  for (int64_t at = 0; at < stretches; at += kMostRows) {
    const dim3 grid(static_cast<unsigned>(chunks_of(s)),
                    static_cast<unsigned>(std::min(kMostRows, stretches - at)));
    cudaError_t status =
        launch(&sum_kernel<T, V>, grid, dim3(128), 0, stream, s, slices, targets, places, partial, at);
    if (status == cudaSuccess)
      status = launch(&join_kernel<T, V>, grid, dim3(128), 0, stream, s, slices, targets,
                      static_cast<const float*>(partial), at);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}
template <class T>
cudaError_t start_sum(const Scatter& s, uint32_t slices, const uint32_t* targets, const uint32_t* places,
                      float* partial, cudaStream_t stream) {
  if (s.slice % 4 == 0) return start_sum<T, 4>(s, slices, targets, places, partial, stream);
  return start_sum<T, 1>(s, slices, targets, places, partial, stream);
}

}  // namespace

cudaError_t gather_elements(const GatherElements& g, cudaStream_t stream) {
  int64_t total = 1;
  for (int d = 0; d < g.rank; ++d) total *= g.dims[d];
  if (total == 0) return cudaSuccess;
  if (g.element_bytes == 1) return start_gather<uint8_t>(g, total, stream);
  if (g.element_bytes == 2) return start_gather<uint16_t>(g, total, stream);
  if (g.element_bytes == 4) return start_gather<uint32_t>(g, total, stream);
  return start_gather<uint64_t>(g, total, stream);
}

int64_t scatter_scratch_bytes(const Scatter& s) {
  if (s.count == 0 || s.slice == 0) return 0;
  const int64_t temporary = sort_bytes(s);
  if (temporary < 0) return -1;
  return 4 * aligned(s.count * 4) + aligned(temporary) + (s.add ? chunks_of(s) * 2 * s.slice * 4 : 0);
}

cudaError_t scatter(const Scatter& s, cudaStream_t stream) {
  const auto bytes = static_cast<size_t>(s.y_count * s.element_bytes);
  cudaError_t status = bytes == 0 ? cudaSuccess
                       : s.data   ? cudaMemcpyAsync(s.y, s.data, bytes, cudaMemcpyDeviceToDevice, stream)
                                  : cudaMemsetAsync(s.y, 0, bytes, stream);
  if (status != cudaSuccess || s.count == 0 || s.slice == 0) return status;
  const auto slices = static_cast<uint32_t>(s.y_count / s.slice);
  auto* at = static_cast<std::byte*>(s.scratch);
  uint32_t* pairs[4];
  for (uint32_t*& p : pairs) {
    p = reinterpret_cast<uint32_t*>(at);
    at += aligned(s.count * 4);
  }
  status = launch(&target_kernel, dim3(blocks_for(s.count)), dim3(kThreads), 0, stream, s, slices, pairs[0],
                  pairs[2]);
  if (status != cudaSuccess) return status;
  auto temporary = static_cast<size_t>(sort_bytes(s));
  uint32_t* const sorted[4] = {pairs[0], pairs[1], pairs[2], pairs[3]};
  status = sort(s, at, temporary, sorted, stream);
  if (status != cudaSuccess) return status;
  auto* partial = reinterpret_cast<float*>(at + aligned(static_cast<int64_t>(temporary)));
  const uint32_t *targets = pairs[1], *places = pairs[3];
  if (!s.add) {
    const int64_t slice_bytes = s.slice * s.element_bytes;
    if (slice_bytes % 16 == 0) return start_last<uint4>(s, slices, targets, places, stream);
    if (slice_bytes % 8 == 0) return start_last<uint2>(s, slices, targets, places, stream);
    if (slice_bytes % 4 == 0) return start_last<uint32_t>(s, slices, targets, places, stream);
    if (slice_bytes % 2 == 0) return start_last<uint16_t>(s, slices, targets, places, stream);
    return start_last<uint8_t>(s, slices, targets, places, stream);
  }
  if (s.type == Elem::f16) return start_sum<__half>(s, slices, targets, places, partial, stream);
  if (s.type == Elem::bf16) return start_sum<__nv_bfloat16>(s, slices, targets, places, partial, stream);
  return start_sum<float>(s, slices, targets, places, partial, stream);
}

}  // namespace pelton::backend::cuda
