// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/conv_gemm.h"

#include <algorithm>
#include <iterator>

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/mma.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kMaxShared = 227 * 1024;

// A block yields kRows x kColumns results; kSplit groups of warps share out the depth of each stage and add
// their sums at the end, which keeps a small product busy without a second kernel.
template <int kRows_, int kColumns_, int kWarpRows_, int kWarpColumns_, int kWarpDepth_, int kSplit_,
          int kStages_>
struct Tile {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kWarpRows = kWarpRows_,
                       kWarpColumns = kWarpColumns_, kWarpDepth = kWarpDepth_, kSplit = kSplit_,
                       kStages = kStages_;
  static constexpr int kDepth = kWarpDepth * kSplit;
  static constexpr int kWarps = kRows / kWarpRows * (kColumns / kWarpColumns) * kSplit;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kPitch = kDepth + 8;  // elements; an odd number of 16-byte units: no bank conflicts
  static constexpr int kStageElements = (kRows + kColumns) * kPitch;
  static constexpr int kSumPitch = kColumns + 4;
  static constexpr int kShared = std::max(kStages * kStageElements * 2, kSplit* kRows* kSumPitch * 4);
  static constexpr int kChunks = kDepth / 8;  // 16-byte pieces of a row of a stage
  static constexpr int kStep = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0 && kRows % kStep == 0);
  static constexpr int kLoadRows = kRows / kStep;
  static constexpr int kLoadColumns = (kColumns + kStep - 1) / kStep;
};

// Two neighbouring elements by their factors, rounded to T.
__device__ __forceinline__ uint32_t multiply_pair(uint32_t a, __half2 b) {
  const __half2 r = __hmul2(*reinterpret_cast<const __half2*>(&a), b);
  return *reinterpret_cast<const uint32_t*>(&r);
}
__device__ __forceinline__ uint32_t multiply_pair(uint32_t a, __nv_bfloat162 b) {
  const __nv_bfloat162 r = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a), b);
  return *reinterpret_cast<const uint32_t*>(&r);
}
template <class T>
struct Pair;
template <>
struct Pair<__half> {
  using Type = __half2;
};
template <>
struct Pair<__nv_bfloat16> {
  using Type = __nv_bfloat162;
};

// Factors of the images that a tile's rows lie in, behind the stages in shared memory: rows of `pitch`
// elements, zeros behind the last channel (the depth is rounded up to whole stages).
struct GateRows {
  int pitch = 0, images = 0;
};
template <class L>
GateRows gate_rows(const ConvGemm& g) {
  GateRows r;
  if (!g.gated) return r;
  r.pitch = (g.c + L::kDepth - 1) / L::kDepth * L::kDepth;
  r.images = std::min(g.n, (L::kRows - 2) / (g.p * g.q) + 2);
  return r;
}

template <class T, class L, bool kGated>
__global__ void __launch_bounds__(L::kThreads, 1)
    conv_gemm_kernel(const ConvGemm g, int column_tiles, bool needs_image, GateRows gates) {
  extern __shared__ __align__(128) unsigned char shared[];
  T* const tiles = reinterpret_cast<T*>(shared);
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const unsigned row_tile = blockIdx.x / column_tiles, column_tile = blockIdx.x % column_tiles;
  const unsigned first_row = row_tile * L::kRows;
  const int first_column = column_tile * L::kColumns;
  // 32-bit divisions: those of 64 bits take longer than the rest of a small product.
  const unsigned pq = static_cast<unsigned>(g.p) * g.q, rows = g.n * pq;
  const int c8 = g.c / 8, k8 = g.r * g.s * c8;
  const T* const x = static_cast<const T*>(g.x);
  const T* const w = static_cast<const T*>(g.w);

  // What this thread loads of every stage: one 16-byte chunk of several rows on each side.
  const int chunk = thread % L::kChunks, load_row = thread / L::kChunks;
  int64_t base[L::kLoadRows];
  int top[L::kLoadRows], left[L::kLoadRows];
#pragma unroll
  for (int i = 0; i < L::kLoadRows; ++i) {
    const unsigned m = first_row + load_row + i * L::kStep;
    const unsigned image = m / pq, place = m - image * pq;
    const unsigned row = place / g.q, column = place - row * g.q;
    top[i] = m < rows ? static_cast<int>(row) * g.stride_h - g.pad_h : -(1 << 28);
    left[i] = static_cast<int>(column) * g.stride_w - g.pad_w;
    base[i] = m < rows ? ((static_cast<int64_t>(image) * g.h + top[i]) * g.w_ + left[i]) * g.c : 0;
  }
  int at_chunk = chunk, at_c = chunk, at_r = 0, at_s = 0;
  auto wrap = [&] {
    while (at_c >= c8) {
      at_c -= c8;
      if (++at_s == g.s) {
        at_s = 0;
        ++at_r;
      }
    }
  };
  wrap();
  auto load_w = [&](int stage, int from_chunk) {
    T* const to = tiles + stage * L::kStageElements + L::kRows * L::kPitch;
#pragma unroll
    for (int i = 0; i < L::kLoadColumns; ++i) {
      const int column = load_row + i * L::kStep;
      if (L::kColumns % L::kStep != 0 && column >= L::kColumns) break;
      const bool there = first_column + column < g.k && from_chunk < k8;
      const T* from = there ? w + (static_cast<int64_t>(first_column + column) * k8 + from_chunk) * 8 : w;
      copy_16(to + column * L::kPitch + chunk * 8, from, there);
    }
  };
  auto load_x = [&](int stage) {
    T* const to = tiles + stage * L::kStageElements;
    const int down = at_r * g.dilation_h, right = at_s * g.dilation_w;
    const int64_t shift = (static_cast<int64_t>(down) * g.w_ + right) * g.c + at_c * 8;
#pragma unroll
    for (int i = 0; i < L::kLoadRows; ++i) {
      const bool there = at_chunk < k8 && static_cast<unsigned>(top[i] + down) < static_cast<unsigned>(g.h) &&
                         static_cast<unsigned>(left[i] + right) < static_cast<unsigned>(g.w_);
      copy_16(to + (load_row + i * L::kStep) * L::kPitch + chunk * 8, there ? x + base[i] + shift : x, there);
    }
    at_chunk += L::kChunks;
    at_c += L::kChunks;
    wrap();
  };

  constexpr int kRowFragments = L::kWarpRows / 16, kColumnFragments = L::kWarpColumns / 8;
  float sums[kRowFragments][kColumnFragments][4] = {};
  constexpr int kWarpsAcross = L::kColumns / L::kWarpColumns;
  constexpr int kWarpsPerPart = L::kRows / L::kWarpRows * kWarpsAcross;
  const int part = warp / kWarpsPerPart, in_part = warp % kWarpsPerPart;
  const int warp_row = in_part / kWarpsAcross * L::kWarpRows,
            warp_column = in_part % kWarpsAcross * L::kWarpColumns;
  const int steps = (k8 + L::kChunks - 1) / L::kChunks;

  // Weights do not depend on the kernel before this one, unless it made them.
  if (!g.fixed_weights) inputs_ready();
#pragma unroll
  for (int s = 0; s < L::kStages - 1; ++s) load_w(s, s * L::kChunks + chunk);
  let_next_start();
  inputs_ready();
  // Every result of a thread is in the same columns; of its first one the operand of the residual, too.
  constexpr int kAcross = L::kColumns / 8;
  static_assert(L::kThreads % kAcross == 0);
  const int channel = first_column + thread % kAcross * 8;
  const unsigned first_m = first_row + thread / kAcross;
  const bool early = g.k % 8 == 0 && channel < g.k && first_m < rows && thread < L::kRows * kAcross;
  const EarlyOperand<8> bias = early_operand<8>(g.epilogue, 0, EpilogueStep::channel, channel, early);
  const EarlyOperand<8> residual = early_operand<8>(
      g.epilogue, 1, EpilogueStep::full, static_cast<int64_t>(first_m) * g.k + channel, early && bias.there);
  T* const gate = reinterpret_cast<T*>(shared + L::kShared);
  int gate_at[kRowFragments][2];  // of the two rows of each fragment that this lane holds
  if constexpr (kGated) {
    const unsigned first_image = first_row / pq;
    for (int i = thread * 8; i < gates.images * gates.pitch; i += L::kThreads * 8) {
      const int image = i / gates.pitch, channel = i - image * gates.pitch;
      const bool there = first_image + image < static_cast<unsigned>(g.n) && channel < g.c;
      const T* from = static_cast<const T*>(g.gate);
      copy_16(gate + i, there ? from + static_cast<int64_t>(first_image + image) * g.c + channel : from,
              there);
    }
#pragma unroll
    for (int i = 0; i < kRowFragments; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned m = min(first_row + warp_row + i * 16 + half * 8 + lane / 4, rows - 1);
        gate_at[i][half] = static_cast<int>(m / pq - first_image) * gates.pitch + lane % 4 * 2;
      }
  }
#pragma unroll
  for (int s = 0; s < L::kStages - 1; ++s) {
    load_x(s);
    commit_copies();
  }
  for (int step = 0; step < steps; ++step) {
    wait_copies<L::kStages - 2>();
    __syncthreads();
    {
      const int ahead = step + L::kStages - 1;
      load_w(ahead % L::kStages, ahead * L::kChunks + chunk);
      load_x(ahead % L::kStages);
      commit_copies();
    }
    const T* const a = tiles + step % L::kStages * L::kStageElements + part * L::kWarpDepth;
    const T* const b = a + L::kRows * L::kPitch;
#pragma unroll
    for (int k = 0; k < L::kWarpDepth; k += 16) {
      uint32_t fa[kRowFragments][4], fb[(kColumnFragments + 1) / 2][4];
#pragma unroll
      for (int i = 0; i < kRowFragments; ++i)
        load_matrices(fa[i], a + (warp_row + i * 16 + lane % 16) * L::kPitch + k + lane / 16 * 8);
      if constexpr (kGated) {
        using P = typename Pair<T>::Type;
        const T* const here = gate + step * L::kDepth + part * L::kWarpDepth + k;
#pragma unroll
        for (int i = 0; i < kRowFragments; ++i)
#pragma unroll
          for (int q = 0; q < 4; ++q)
            fa[i][q] =
                multiply_pair(fa[i][q], *reinterpret_cast<const P*>(here + gate_at[i][q % 2] + q / 2 * 8));
      }
#pragma unroll
      for (int j = 0; j < kColumnFragments / 2; ++j)
        load_matrices(
            fb[j], b + (warp_column + j * 16 + lane / 16 * 8 + lane % 8) * L::kPitch + k + lane / 8 % 2 * 8);
#pragma unroll
      for (int i = 0; i < kRowFragments; ++i)
#pragma unroll
        for (int j = 0; j < kColumnFragments; ++j)
          multiply_add<T>(sums[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
  }
  wait_copies<0>();
  __syncthreads();

  float* const out = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int i = 0; i < kRowFragments; ++i)
#pragma unroll
    for (int j = 0; j < kColumnFragments; ++j) {
      float* to = out + (part * L::kRows + warp_row + i * 16 + lane / 4) * L::kSumPitch + warp_column +
                  j * 8 + lane % 4 * 2;
      to[0] = sums[i][j][0];
      to[1] = sums[i][j][1];
      to[8 * L::kSumPitch] = sums[i][j][2];
      to[8 * L::kSumPitch + 1] = sums[i][j][3];
    }
  __syncthreads();
  for (int i = thread; i < L::kRows * kAcross; i += L::kThreads) {
    const int row = i / kAcross, column = channel - first_column;
    const unsigned m = first_row + row;
    if (m >= rows || channel >= g.k) continue;
    float v[8] = {};
#pragma unroll
    for (int s = 0; s < L::kSplit; ++s) {
      float4 pair[2];
      const float* from = out + (s * L::kRows + row) * L::kSumPitch + column;
      pair[0] = *reinterpret_cast<const float4*>(from);
      pair[1] = *reinterpret_cast<const float4*>(from + 4);
      const float* f = reinterpret_cast<const float*>(pair);
#pragma unroll
      for (int e = 0; e < 8; ++e) v[e] += f[e];
    }
    const int64_t offset = static_cast<int64_t>(m) * g.k + channel;
    const int image = needs_image ? static_cast<int>(m / pq) : 0;
    if (g.k % 8 == 0) {
      int step = 0;
      if (bias.there) {
        add_early(bias, v);
        step = 1;
      }
      if (residual.there && i == thread) {
        add_early(residual, v);
        step = 2;
      }
      apply_epilogue<8>(g.epilogue, v, offset, image, channel, g.k, step);
      store_as<8>(g.y_type, g.y, offset, v);
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (channel + e >= g.k) break;
        float one[1] = {v[e]};
        apply_epilogue<1>(g.epilogue, one, offset + e, image, channel + e, g.k);
        store_as<1>(g.y_type, g.y, offset + e, one);
      }
    }
  }
}

// What a block of the current GPU may have.
cudaError_t most_shared(int& bytes) {
  int gpu = 0;
  const cudaError_t found = cudaGetDevice(&gpu);
  return found != cudaSuccess ? found
                              : cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu);
}

template <class T, class L>
cudaError_t start(const ConvGemm& g, cudaStream_t stream) {
  const int64_t rows = static_cast<int64_t>(g.n) * g.p * g.q;
  const int64_t row_tiles = (rows + L::kRows - 1) / L::kRows;
  const int column_tiles = (g.k + L::kColumns - 1) / L::kColumns;
  bool needs_image = false;
  for (int i = 0; i < g.epilogue.count; ++i)
    needs_image |= g.epilogue.steps[i].where == EpilogueStep::image_channel;
  auto* kernel = g.gated ? &conv_gemm_kernel<T, L, true> : &conv_gemm_kernel<T, L, false>;
  const GateRows gates = gate_rows<L>(g);
  const int shared = L::kShared + gates.images * gates.pitch * 2;
  // The limit belongs to the function, which other threads start with other gates: it is the same each time.
  int limit = L::kShared;
  if (const cudaError_t asked = g.gated ? most_shared(limit) : cudaSuccess; asked != cudaSuccess)
    return asked;
  const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limit);
  if (allowed != cudaSuccess) return allowed;
  return launch(kernel, dim3(static_cast<unsigned>(row_tiles * column_tiles)), dim3(L::kThreads),
                static_cast<size_t>(shared), stream, g, column_tiles, needs_image, gates);
}
template <class L>
bool fits(const ConvGemm& g) {
  const GateRows gates = gate_rows<L>(g);
  return L::kShared + int64_t{2} * gates.images * gates.pitch <= kMaxShared;
}
template <class L>
cudaError_t start_any(const ConvGemm& g, cudaStream_t stream) {
  return g.type == Elem::bf16 ? start<__nv_bfloat16, L>(g, stream) : start<__half, L>(g, stream);
}

struct Configuration {
  const char* name;
  int rows, columns, depth, blocks_per_multiprocessor;
  cudaError_t (*start)(const ConvGemm&, cudaStream_t);
  bool (*fits)(const ConvGemm&);
};
template <class L>
constexpr Configuration row(const char* name) {
  constexpr int by_memory = 227 * 1024 / (L::kShared + 1024), by_threads = 2048 / L::kThreads;
  return {name,          L::kRows, L::kColumns, L::kDepth, by_memory < by_threads ? by_memory : by_threads,
          &start_any<L>, &fits<L>};
}

const Configuration kConfigurations[] = {
    row<Tile<128, 128, 64, 32, 32, 1, 4>>("128x128x32"), row<Tile<256, 64, 64, 32, 32, 1, 4>>("256x64x32"),
    row<Tile<128, 64, 32, 32, 64, 1, 3>>("128x64x64"),   row<Tile<64, 64, 32, 32, 64, 1, 4>>("64x64x64"),
    row<Tile<128, 32, 32, 32, 32, 1, 4>>("128x32x32"),   row<Tile<64, 32, 32, 32, 32, 2, 4>>("64x32x64"),
    row<Tile<32, 32, 32, 32, 32, 4, 3>>("32x32x128"),    row<Tile<64, 16, 32, 16, 32, 4, 3>>("64x16x128"),
    row<Tile<16, 32, 16, 32, 32, 8, 3>>("16x32x256"),
};

}  // namespace

int conv_gemm_configurations() {
  return static_cast<int>(std::size(kConfigurations));
}
const char* conv_gemm_name(int configuration) {
  return kConfigurations[configuration].name;
}
double conv_gemm_cost(const ConvGemm& g, int configuration, int multiprocessors) {
  const Configuration& c = kConfigurations[configuration];
  auto tiles = [](double size, int tile) {
    return static_cast<double>(static_cast<int64_t>((size + tile - 1) / tile));
  };
  const double blocks = tiles(static_cast<double>(g.n) * g.p * g.q, c.rows) * tiles(g.k, c.columns);
  const double steps = tiles(static_cast<double>(g.r) * g.s * g.c, c.depth);
  const double slots = static_cast<double>(multiprocessors) * c.blocks_per_multiprocessor;
  const double waves = static_cast<double>(static_cast<int64_t>((blocks + slots - 1) / slots));
  // A step lasts as long as its copies' latency shared by the stages, or its products on a multiprocessor
  // that all its blocks share.
  const double together = blocks < slots ? (blocks + multiprocessors - 1) / multiprocessors
                                         : static_cast<double>(c.blocks_per_multiprocessor);
  const double products =
      static_cast<double>(c.rows) * c.columns * c.depth / 1024 * 1.6 * (together < 1 ? 1 : together);
  const double bytes = (c.rows + c.columns) * c.depth * 2.0 / 40 * (together < 1 ? 1 : together);
  const double step = std::max({250.0, products, bytes});
  return waves * (2200 + steps * step + c.rows * c.columns / 16.0);
}
bool conv_gemm_fits(const ConvGemm& g, int configuration) {
  return kConfigurations[configuration].fits(g);
}
cudaError_t conv_gemm(const ConvGemm& g, int configuration, cudaStream_t stream) {
  return kConfigurations[configuration].start(g, stream);
}

}  // namespace pelton::backend::cuda
