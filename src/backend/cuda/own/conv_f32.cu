// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/conv_f32.h"

#include <cooperative_groups.h>

#include <algorithm>
#include <iterator>

#include "backend/cuda/own/device.cuh"
#include "backend/cuda/own/launch.cuh"
#include "backend/cuda/own/mma.cuh"

namespace pelton::backend::cuda {
namespace {

constexpr int kDepth = 32;          // of a stage
constexpr int kPitch = kDepth + 4;  // floats; an odd number of 16-byte units: no bank conflicts
constexpr int kUnits = kDepth / 4;  // 16-byte pieces of a row of a stage

// A warp is 8 x 4 threads, each with kRowsEach x kColumnsEach results.
template <int kWarpsDown_, int kWarpsAcross_, int kRowsEach_, int kColumnsEach_, int kStages_>
struct Tile {
  static constexpr int kWarpsDown = kWarpsDown_, kWarpsAcross = kWarpsAcross_, kRowsEach = kRowsEach_,
                       kColumnsEach = kColumnsEach_, kStages = kStages_;
  static constexpr int kWarpRows = 8 * kRowsEach, kWarpColumns = 4 * kColumnsEach;
  static constexpr int kRows = kWarpsDown * kWarpRows, kColumns = kWarpsAcross * kWarpColumns;
  static constexpr int kThreads = 32 * kWarpsDown * kWarpsAcross;
  static constexpr int kStep = kThreads / kUnits;  // rows that all threads copy at a time
  static constexpr int kStage = (kRows + kColumns) * kPitch;
  static constexpr int kSumPitch = kColumns + 4;
  static constexpr int kUnroll =
      kRowsEach * kColumnsEach > 32 ? 1 : 2;  // more takes registers from a second block
  static constexpr int kShared = 4 * std::max(kStages * kStage, kRows* kSumPitch);
  static_assert(kRows % kStep == 0 && kColumns % kStep == 0);
};

template <class L>
__global__ void __launch_bounds__(L::kThreads) kernel(const ConvF32 g, int column_tiles, int split) {
  namespace cg = cooperative_groups;
  extern __shared__ __align__(16) float shared[];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const unsigned part = blockIdx.x % split, tile = blockIdx.x / split;
  const int rows = g.n * g.p * g.q;
  const int first_row = static_cast<int>(tile / column_tiles) * L::kRows,
            first_column = static_cast<int>(tile % column_tiles) * L::kColumns;
  const int depth = g.r * g.s * g.c, stages = (depth + kDepth - 1) / kDepth;
  const int begin = static_cast<int>(static_cast<int64_t>(stages) * part / split),
            end = static_cast<int>(static_cast<int64_t>(stages) * (part + 1) / split);

  // A thread copies one unit of every kStep-th row.
  constexpr int kOwnRows = L::kRows / L::kStep, kOwnColumns = L::kColumns / L::kStep;
  const int unit = thread % kUnits, row = thread / kUnits;
  int image_at[kOwnRows], top[kOwnRows], left[kOwnRows];
#pragma unroll
  for (int i = 0; i < kOwnRows; ++i) {
    const int at = first_row + row + i * L::kStep;
    const int q = at % g.q, p = at / g.q % g.p;
    image_at[i] = at < rows ? at / g.q / g.p : -1;
    top[i] = p * g.stride_h - g.pad_h;
    left[i] = q * g.stride_w - g.pad_w;
  }
  let_next_start();
  inputs_ready();
  auto copy_stage = [&](int stage) {
    float* const to = shared + (stage - begin) % L::kStages * L::kStage;
    const int d = stage * kDepth + unit * 4;
    const bool inside = stage < end && d < depth;
    const int tap = d / g.c, c = d - tap * g.c, r = tap / g.s, s = tap - r * g.s;
    const int down = r * g.dilation_h, right = s * g.dilation_w;
    if (stage < end) {
#pragma unroll
      for (int i = 0; i < kOwnRows; ++i) {
        const int h = top[i] + down, w = left[i] + right;
        const bool there = inside && image_at[i] >= 0 &&
                           static_cast<unsigned>(h) < static_cast<unsigned>(g.h) &&
                           static_cast<unsigned>(w) < static_cast<unsigned>(g.w_);
        const int64_t pixel = (static_cast<int64_t>(image_at[i]) * g.h + h) * g.w_ + w;
        copy_16(to + (row + i * L::kStep) * kPitch + unit * 4, there ? g.x + pixel * g.c + c : g.x, there);
      }
#pragma unroll
      for (int i = 0; i < kOwnColumns; ++i) {
        const int column = first_column + row + i * L::kStep;
        const bool there = inside && column < g.k;
        copy_16(to + (L::kRows + row + i * L::kStep) * kPitch + unit * 4,
                there ? g.w + static_cast<int64_t>(column) * depth + d : g.w, there);
      }
    }
    commit_copies();
  };
#pragma unroll
  for (int i = 0; i < L::kStages - 1; ++i) copy_stage(begin + i);

  // Rows and columns of a thread lie 8 and 4 apart: neighbours read neighbouring rows of a stage.
  const int own_row = warp / L::kWarpsAcross * L::kWarpRows + lane / 4,
            own_column = warp % L::kWarpsAcross * L::kWarpColumns + lane % 4;
  float sums[L::kRowsEach][L::kColumnsEach] = {};
  for (int stage = begin; stage < end; ++stage) {
    wait_copies<L::kStages - 2>();
    __syncthreads();
    copy_stage(stage + L::kStages - 1);
    const float* const left_side = shared + (stage - begin) % L::kStages * L::kStage + own_row * kPitch;
    const float* const right_side =
        shared + (stage - begin) % L::kStages * L::kStage + (L::kRows + own_column) * kPitch;
#pragma unroll L::kUnroll
    for (int d = 0; d < kDepth; d += 4) {
      float4 a[L::kRowsEach];
#pragma unroll
      for (int i = 0; i < L::kRowsEach; ++i)
        a[i] = *reinterpret_cast<const float4*>(left_side + i * 8 * kPitch + d);
#pragma unroll
      for (int j = 0; j < L::kColumnsEach; ++j) {
        const float4 b = *reinterpret_cast<const float4*>(right_side + j * 4 * kPitch + d);
#pragma unroll
        for (int i = 0; i < L::kRowsEach; ++i) {
          sums[i][j] = fmaf(a[i].x, b.x, sums[i][j]);
          sums[i][j] = fmaf(a[i].y, b.y, sums[i][j]);
          sums[i][j] = fmaf(a[i].z, b.z, sums[i][j]);
          sums[i][j] = fmaf(a[i].w, b.w, sums[i][j]);
        }
      }
    }
  }
  wait_copies<0>();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < L::kRowsEach; ++i)
#pragma unroll
    for (int j = 0; j < L::kColumnsEach; ++j)
      shared[(own_row + i * 8) * L::kSumPitch + own_column + j * 4] = sums[i][j];
  cg::cluster_group cluster = cg::this_cluster();
  if (split > 1)
    cluster.sync();
  else
    __syncthreads();
  // Every block of the cluster finishes some rows of the tile.
  const int last = static_cast<int>(L::kRows * (part + 1) / split);
  constexpr int kAcross = L::kColumns / 4;
  for (int i = static_cast<int>(L::kRows * part / split) * kAcross + thread; i < last * kAcross;
       i += L::kThreads) {
    const int in_tile = i / kAcross, column = i % kAcross * 4;
    const int at = first_row + in_tile, k = first_column + column;
    if (at >= rows || k >= g.k) continue;
    float v[4] = {};
    for (int other = 0; other < split; ++other) {
      const float* const from = split > 1 ? cluster.map_shared_rank(shared, other) : shared;
      const float4 sum = *reinterpret_cast<const float4*>(from + in_tile * L::kSumPitch + column);
      v[0] += sum.x;
      v[1] += sum.y;
      v[2] += sum.z;
      v[3] += sum.w;
    }
    const int64_t offset = static_cast<int64_t>(at) * g.k + k;
    apply_epilogue<4>(g.epilogue, v, offset, at / (g.p * g.q), k, g.k);
    store_as<4>(g.y_type, g.y, offset, v);
  }
  if (split > 1) cluster.sync();  // nobody leaves while others read its sums
}

int64_t tiles(int64_t size, int tile) {
  return (size + tile - 1) / tile;
}

template <class L>
cudaError_t start(const ConvF32& g, int split, cudaStream_t stream) {
  auto* k = &kernel<L>;
  const cudaError_t allowed =
      cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, L::kShared);
  if (allowed != cudaSuccess) return allowed;
  const int64_t row_tiles = tiles(static_cast<int64_t>(g.n) * g.p * g.q, L::kRows),
                column_tiles = tiles(g.k, L::kColumns);
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(split);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(row_tiles * column_tiles * split));
  config.blockDim = dim3(L::kThreads);
  config.dynamicSmemBytes = L::kShared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  return cudaLaunchKernelEx(&config, k, g, static_cast<int>(column_tiles), split);
}

struct Configuration {
  const char* name;
  int rows, columns, split;
  cudaError_t (*start)(const ConvF32&, int, cudaStream_t);
};
template <class L>
constexpr Configuration configuration(const char* name, int split) {
  return {name, L::kRows, L::kColumns, split, &start<L>};
}

using Large = Tile<2, 4, 8, 8, 3>;   // 128 x 128
using Tall = Tile<2, 2, 8, 8, 3>;    // 128 x 64
using Square = Tile<1, 4, 8, 4, 3>;  // 64 x 64
using Small = Tile<2, 2, 4, 4, 4>;   // 64 x 32
using Wide = Tile<1, 4, 4, 4, 4>;    // 32 x 64
constexpr Configuration kConfigurations[] = {
    configuration<Large>("128x128 by 1", 1), configuration<Large>("128x128 by 2", 2),
    configuration<Large>("128x128 by 4", 4), configuration<Tall>("128x64 by 1", 1),
    configuration<Tall>("128x64 by 2", 2),   configuration<Square>("64x64 by 1", 1),
    configuration<Square>("64x64 by 2", 2),  configuration<Square>("64x64 by 4", 4),
    configuration<Square>("64x64 by 8", 8),  configuration<Small>("64x32 by 1", 1),
    configuration<Small>("64x32 by 2", 2),   configuration<Small>("64x32 by 4", 4),
    configuration<Small>("64x32 by 8", 8),   configuration<Wide>("32x64 by 1", 1),
    configuration<Wide>("32x64 by 2", 2),    configuration<Wide>("32x64 by 4", 4),
    configuration<Wide>("32x64 by 8", 8)};

}  // namespace

int conv_f32_configurations() {
  return static_cast<int>(std::size(kConfigurations));
}
const char* conv_f32_name(int configuration) {
  return kConfigurations[configuration].name;
}
double conv_f32_cost(const ConvF32& g, int configuration, int multiprocessors) {
  const Configuration& c = kConfigurations[configuration];
  const double blocks =
      static_cast<double>(tiles(static_cast<int64_t>(g.n) * g.p * g.q, c.rows) * tiles(g.k, c.columns)) *
      c.split;
  const double stages =
      static_cast<double>(tiles(tiles(static_cast<int64_t>(g.r) * g.s * g.c, kDepth), c.split));
  // Blocks of a multiprocessor share its 128 lanes; a stage lasts no less than its copies' latency by depth.
  const double each = static_cast<double>(tiles(static_cast<int64_t>(blocks), multiprocessors));
  const double lanes = c.rows * c.columns * kDepth / (128 * 1.7 * 0.7);
  return 2500 + (c.split > 1 ? 1200 : 0) + stages * std::max(each * lanes, 250.0);
}
cudaError_t conv_f32(const ConvF32& g, int configuration, cudaStream_t stream) {
  return kConfigurations[configuration].start(g, kConfigurations[configuration].split, stream);
}

}  // namespace pelton::backend::cuda
