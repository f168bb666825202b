// SPDX-License-Identifier: Apache-2.0
// Sorting: chunks of a line in shared memory, then runs merged pairwise, each element finding its place in
// the other run by bisection. A key holds the order of the value above the index, so all keys differ.
#include "backend/cuda/own/ranking.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "backend/cuda/own/launch.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kThreads = 256, kChunk = 2048;
constexpr uint64_t kNothing = ~uint64_t{0};

// Bits whose unsigned order is that of the values; -0 counts as +0, every NaN as the largest.
__device__ uint32_t ordered(float x) {
  if (x != x) return 0xFFFFFFFFu;
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ uint32_t ordered(int32_t x) {
  return static_cast<uint32_t>(x) ^ 0x80000000u;
}
__device__ uint32_t order_at(Number type, const void* p, int64_t i) {
  switch (type) {
    case Number::f32:
      return ordered(static_cast<const float*>(p)[i]);
    case Number::f16:
      return ordered(__half2float(static_cast<const __half*>(p)[i]));
    case Number::bf16:
      return ordered(__bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]));
    case Number::i32:
      return ordered(static_cast<const int32_t*>(p)[i]);
    case Number::i16:
      return ordered(static_cast<int32_t>(static_cast<const int16_t*>(p)[i]));
    case Number::i8:
      return ordered(static_cast<int32_t>(static_cast<const int8_t*>(p)[i]));
    case Number::u32:
      return static_cast<const uint32_t*>(p)[i];
    case Number::u16:
      return static_cast<const uint16_t*>(p)[i];
    default:
      return static_cast<const uint8_t*>(p)[i];
  }
}
__host__ __device__ int bytes_of(Number type) {
  switch (type) {
    case Number::f64:
    case Number::i64:
      return 8;
    case Number::f32:
    case Number::i32:
    case Number::u32:
      return 4;
    case Number::i8:
    case Number::u8:
      return 1;
    default:
      return 2;
  }
}
__device__ int64_t start_of(const Lines& l, int64_t line, int64_t size) {
  return line / l.stride * l.stride * size + line % l.stride;
}

// Sorted chunks, cut to `run` keys each: [lines, chunks, run].
__global__ void __launch_bounds__(kThreads)
    chunk_kernel(const SortLines g, uint64_t* to, int chunks, int run) {
  __shared__ uint64_t keys[kChunk];
  let_next_start();
  inputs_ready();
  const int64_t line = blockIdx.x / chunks;
  const int chunk = static_cast<int>(blockIdx.x % chunks);
  const int64_t start = start_of(g.lines, line, g.lines.size);
  for (int i = threadIdx.x; i < kChunk; i += kThreads) {
    const int64_t at = static_cast<int64_t>(chunk) * kChunk + i;
    uint64_t key = kNothing;
    if (at < g.lines.size) {
      uint32_t order = order_at(g.type, g.x, start + at * g.lines.stride);
      if (g.descending) order = ~order;
      key = static_cast<uint64_t>(order) << 32 | static_cast<uint32_t>(at);
    }
    keys[i] = key;
  }
  for (int width = 2; width <= kChunk; width *= 2)
    for (int step = width / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < kChunk / 2; i += kThreads) {
        const int low = i / step * step * 2 + i % step, high = low + step;
        const bool up = (low & width) == 0;
        const uint64_t a = keys[low], b = keys[high];
        if ((a > b) == up) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  __syncthreads();
  for (int i = threadIdx.x; i < run; i += kThreads) to[static_cast<int64_t>(blockIdx.x) * run + i] = keys[i];
}

// Pairs of runs of `run` keys to runs of `out` keys. runs: of a line, before; a run without a partner moves.
__global__ void __launch_bounds__(kThreads)
    merge_kernel(const uint64_t* from, uint64_t* to, int64_t count, int64_t runs, int64_t run, int64_t out) {
  let_next_start();
  inputs_ready();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t offset = i % run, index = i / run % runs, line = i / run / runs;
  const uint64_t key = from[i];
  const int64_t partner = index ^ 1;
  int64_t place = offset;
  if (partner < runs) {
    const uint64_t* other = from + (line * runs + partner) * run;
    int64_t low = 0, high = run;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      // Keys that stand for nothing are equal: the first run's come first.
      const bool before = other[middle] < key || (other[middle] == key && index > partner);
      if (before)
        low = middle + 1;
      else
        high = middle;
    }
    place += low;
  }
  const int64_t runs_after = (runs + 1) / 2;
  if (place < out) to[(line * runs_after + index / 2) * out + place] = key;
}
// What a run without a partner leaves open.
__global__ void __launch_bounds__(kThreads)
    fill_kernel(uint64_t* to, int64_t lines, int64_t runs_after, int64_t out, int64_t run) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t open = out - run;
  if (i >= lines * open) return;
  to[(i / open * runs_after + runs_after - 1) * out + run + i % open] = kNothing;
}

__global__ void __launch_bounds__(kThreads)
    store_kernel(const SortLines g, const uint64_t* keys, int64_t run) {
  let_next_start();
  inputs_ready();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= g.lines.count * g.keep) return;
  const int64_t line = i / g.keep, k = i % g.keep;
  const auto index = static_cast<uint32_t>(keys[line * run + k]);
  const int64_t from = start_of(g.lines, line, g.lines.size) + index * g.lines.stride,
                to = start_of(g.lines, line, g.keep) + k * g.lines.stride;
  const int bytes = bytes_of(g.type);
  if (bytes == 4)
    static_cast<uint32_t*>(g.values)[to] = static_cast<const uint32_t*>(g.x)[from];
  else if (bytes == 2)
    static_cast<uint16_t*>(g.values)[to] = static_cast<const uint16_t*>(g.x)[from];
  else
    static_cast<uint8_t*>(g.values)[to] = static_cast<const uint8_t*>(g.x)[from];
  if (g.indices) g.indices[to] = index;
}

unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}
int64_t chunks_of(const SortLines& g) {
  return (g.lines.size + kChunk - 1) / kChunk;
}
int64_t first_run(const SortLines& g) {
  return g.keep < kChunk ? g.keep : kChunk;
}

// Greater is better.
__device__ uint64_t better(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}
__device__ uint64_t pick_key(const PickLines& g, int64_t at, int64_t k) {
  uint32_t order = order_at(g.type, g.x, at);
  const bool real = g.type == Number::f32 || g.type == Number::f16 || g.type == Number::bf16;
  if (!g.max && !(real && order == 0xFFFFFFFFu)) order = real ? 0xFFFFFFFEu - order : ~order;
  return static_cast<uint64_t>(order) << 32 | (g.last ? static_cast<uint32_t>(k) : ~static_cast<uint32_t>(k));
}
__device__ int64_t picked(const PickLines& g, uint64_t key) {
  return g.last ? static_cast<uint32_t>(key) : ~static_cast<uint32_t>(key);
}
// A block a line where elements are neighbours, else a thread a line.
__global__ void __launch_bounds__(kThreads) pick_block_kernel(const PickLines g) {
  __shared__ uint64_t shared[kThreads / 32];
  let_next_start();
  inputs_ready();
  const int64_t start = static_cast<int64_t>(blockIdx.x) * g.lines.size;
  uint64_t best = 0;
  for (int64_t k = threadIdx.x; k < g.lines.size; k += kThreads)
    best = better(best, pick_key(g, start + k, k));
  for (int i = 16; i > 0; i /= 2) best = better(best, __shfl_xor_sync(0xFFFFFFFFu, best, i));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < kThreads / 32; ++i) best = better(best, shared[i]);
  g.index[blockIdx.x] = picked(g, best);
}
__global__ void __launch_bounds__(kThreads) pick_thread_kernel(const PickLines g) {
  let_next_start();
  inputs_ready();
  const int64_t line = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (line >= g.lines.count) return;
  const int64_t start = start_of(g.lines, line, g.lines.size);
  uint64_t best = 0;
  for (int64_t k = 0; k < g.lines.size; ++k) best = better(best, pick_key(g, start + k * g.lines.stride, k));
  g.index[line] = picked(g, best);
}

template <class T>
struct Wide {
  using type = int64_t;
  static __device__ type of(T x) { return x; }
  static __device__ T back(type x) { return static_cast<T>(x); }
};
template <>
struct Wide<double> {
  using type = double;
  static __device__ type of(double x) { return x; }
  static __device__ double back(double x) { return x; }
};
template <>
struct Wide<float> {
  using type = double;
  static __device__ type of(float x) { return x; }
  static __device__ float back(double x) { return static_cast<float>(x); }
};
template <>
struct Wide<__half> {
  using type = double;
  static __device__ type of(__half x) { return __half2float(x); }
  static __device__ __half back(double x) { return __double2half(x); }
};
template <>
struct Wide<__nv_bfloat16> {
  using type = double;
  static __device__ type of(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __device__ __nv_bfloat16 back(double x) { return __double2bfloat16(x); }
};

// A warp a line, 32 elements at a time.
template <class T>
__global__ void __launch_bounds__(kThreads) scan_kernel(const ScanLines g) {
  using W = typename Wide<T>::type;
  let_next_start();
  inputs_ready();
  const int64_t line = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (line >= g.lines.count) return;
  const int lane = threadIdx.x % 32;
  const int64_t start = start_of(g.lines, line, g.lines.size);
  const W neutral = g.product ? 1 : 0;
  auto join = [&](W a, W b) {
    if constexpr (std::is_integral_v<W>) {  // integers wrap
      const auto u = static_cast<uint64_t>(a), v = static_cast<uint64_t>(b);
      return static_cast<W>(g.product ? u * v : u + v);
    } else {
      return g.product ? a * b : a + b;
    }
  };
  W carry = neutral;
  for (int64_t first = 0; first < g.lines.size; first += 32) {
    const int64_t k = first + lane;
    const bool there = k < g.lines.size;
    const int64_t at = start + (g.reverse ? g.lines.size - 1 - k : k) * g.lines.stride;
    const W own = there ? Wide<T>::of(static_cast<const T*>(g.x)[at]) : neutral;
    W total = own;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
      const W before = __shfl_up_sync(0xFFFFFFFFu, total, i);
      if (lane >= i) total = join(before, total);
    }
    W before = __shfl_up_sync(0xFFFFFFFFu, total, 1);
    if (lane == 0) before = neutral;
    if (there) static_cast<T*>(g.y)[at] = Wide<T>::back(join(carry, g.exclusive ? before : total));
    carry = join(carry, __shfl_sync(0xFFFFFFFFu, total, 31));
  }
}
template <class T>
cudaError_t start_scan(const ScanLines& g, cudaStream_t stream) {
  constexpr int kLines = kThreads / 32;
  return launch(&scan_kernel<T>, dim3(static_cast<unsigned>((g.lines.count + kLines - 1) / kLines)),
                dim3(kThreads), 0, stream, g);
}

}  // namespace

int64_t sort_scratch_bytes(const SortLines& g) {
  // Two buffers that the passes write in turn. A run without a partner is filled up: at most twice the keys.
  return 2 * (2 * g.lines.count * chunks_of(g) * first_run(g) * 8 + 256);
}

cudaError_t sort_lines(const SortLines& g, cudaStream_t stream) {
  if (g.lines.count == 0 || g.keep == 0) return cudaSuccess;
  auto* from = static_cast<uint64_t*>(g.scratch);
  auto* to = from + sort_scratch_bytes(g) / 16;
  int64_t runs = chunks_of(g), run = first_run(g);
  cudaError_t status =
      launch(&chunk_kernel, dim3(static_cast<unsigned>(g.lines.count * runs)), dim3(kThreads), 0, stream, g,
             from, static_cast<int>(runs), static_cast<int>(run));
  while (status == cudaSuccess && runs > 1) {
    const int64_t out = 2 * run < g.keep ? 2 * run : g.keep, after = (runs + 1) / 2,
                  count = g.lines.count * runs * run;
    status = launch(&merge_kernel, dim3(blocks_for(count)), dim3(kThreads), 0, stream, from, to, count, runs,
                    run, out);
    if (status == cudaSuccess && runs % 2 == 1 && out > run) {
      fill_kernel<<<blocks_for(g.lines.count * (out - run)), kThreads, 0, stream>>>(to, g.lines.count, after,
                                                                                    out, run);
      status = cudaGetLastError();
    }
    uint64_t* other = from;
    from = to;
    to = other;
    runs = after;
    run = out;
  }
  if (status != cudaSuccess) return status;
  return launch(&store_kernel, dim3(blocks_for(g.lines.count * g.keep)), dim3(kThreads), 0, stream, g,
                static_cast<const uint64_t*>(from), run);
}

cudaError_t pick_lines(const PickLines& g, cudaStream_t stream) {
  if (g.lines.count == 0) return cudaSuccess;
  if (g.lines.stride == 1 && g.lines.size >= 64)
    return launch(&pick_block_kernel, dim3(static_cast<unsigned>(g.lines.count)), dim3(kThreads), 0, stream,
                  g);
  return launch(&pick_thread_kernel, dim3(blocks_for(g.lines.count)), dim3(kThreads), 0, stream, g);
}

cudaError_t scan_lines(const ScanLines& g, cudaStream_t stream) {
  if (g.lines.count == 0 || g.lines.size == 0) return cudaSuccess;
  switch (g.type) {
    case Number::f32:
      return start_scan<float>(g, stream);
    case Number::f16:
      return start_scan<__half>(g, stream);
    case Number::bf16:
      return start_scan<__nv_bfloat16>(g, stream);
    case Number::f64:
      return start_scan<double>(g, stream);
    case Number::i64:
      return start_scan<int64_t>(g, stream);
    case Number::i32:
      return start_scan<int32_t>(g, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace pelton::backend::cuda
