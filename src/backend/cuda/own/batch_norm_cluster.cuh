// SPDX-License-Identifier: Apache-2.0
// Batch norm whose data stays in the shared memory of a cluster: read once, one launch. It includes nothing
// but its own headers: the .cu includes the device's primitives before it, a test those of an emulation.
#pragma once

#include "backend/cuda/own/batch_norm.cuh"

namespace pelton::backend::cuda {

// Blocks [of a tile of channels, its cluster]; a tile has `lanes` groups of V channels, lanes a power of two.
template <int V>
struct ClusterPlan {
  static constexpr int kThreads = kNormClusterThreads;
  static constexpr int kSums = kThreads * 2 * V;  // two of each channel that a thread has
  int width, teams;                               // channels of a tile, rows that threads take at a time
  int64_t rows, rows_each;
  int data_bytes, bytes;  // of shared memory: of one of the operands, in all
  __host__ __device__ ClusterPlan(const BatchNorm& d, const NormCluster& s, bool backward,
                                  int element_bytes) {
    width = s.lanes * V;
    teams = kThreads / s.lanes;
    rows = d.n * d.places;
    rows_each = (rows + s.blocks - 1) / s.blocks;
    data_bytes = static_cast<int>(rows_each * width * element_bytes);
    // Sums of threads; of parts of the teams, of the block, of the cluster (f64); shifts; the table.
    bytes = data_bytes * (backward ? 2 : 1) + kSums * 4 + (kThreads + 4 * width) * 8 + 4 * width * 4;
  }
};

template <class T, int V, bool kBackward, NormEnd kEnd>
__global__ void __launch_bounds__(kNormClusterThreads)
    norm_cluster_kernel(const BatchNorm d, const NormCluster s) {
  constexpr int kThreads = kNormClusterThreads, kStages = 4;
  const ClusterPlan<V> plan(d, s, kBackward, sizeof(T));
  const int thread = threadIdx.x, lane = thread % s.lanes, team = thread / s.lanes, rank = cluster_rank();
  const int first_channel = blockIdx.x * plan.width, channel = first_channel + lane * V;
  const bool idle = channel >= d.c;  // all groups are whole: V divides C
  const int64_t first_row = rank * plan.rows_each, left = plan.rows - first_row;
  const int rows = static_cast<int>(left < 0 ? 0 : left < plan.rows_each ? left : plan.rows_each);
  const int own = idle || team >= rows ? 0 : (rows - team - 1) / plan.teams + 1;  // rows of this thread

  unsigned char* const memory = launched_shared();
  T* const xs = reinterpret_cast<T*>(memory);  // [rows_each, width], each thread reads what it has copied
  T* const gs = reinterpret_cast<T*>(memory + plan.data_bytes);
  double* const parts = reinterpret_cast<double*>(memory + plan.data_bytes * (kBackward ? 2 : 1));
  double* const of_block = parts + kThreads;             // [2, width], read by the cluster
  double* const of_cluster = of_block + 2 * plan.width;  // [2, width]
  float* const of_threads = reinterpret_cast<float*>(of_cluster + 2 * plan.width);  // [teams, 2, width]
  float* const shifts = of_threads + ClusterPlan<V>::kSums;                         // [width]
  float* const table = shifts + plan.width;                                         // [3, width]

  const int64_t start = (first_row + team) * d.c + channel, step = static_cast<int64_t>(plan.teams) * d.c;
  let_next_start();
  inputs_ready();
  for (int stage = 0; stage < kStages; ++stage) {
    for (int i = own * stage / kStages; i < own * (stage + 1) / kStages; ++i) {
      const int at = (i * kThreads + thread) * V;
      copy_16(xs + at, static_cast<const T*>(d.x) + start + i * step, true);
      if (kBackward) copy_16(gs + at, static_cast<const T*>(d.g) + start + i * step, true);
    }
    commit_copies();
  }
  // What is needed behind the sums is asked for before them.
  NormChannel known;
  const int mine = first_channel + thread;  // the channel whose sums this thread finishes
  const bool finishes = thread < plan.width && mine < d.c;
  if (finishes) known = norm_channel<kBackward>(d, mine);
  float shift[V] = {}, factor[V] = {}, bias[V] = {};
  if (!idle) {
    if constexpr (kBackward) {
      load_v<V>(d.mean + channel, shift);
      if (d.through != BatchNorm::open) {
        float rstd[V];
        load_v<V>(d.rstd + channel, rstd);
        load_as<V>(d.parameter_type, d.scale, channel, factor);
        load_as<V>(d.parameter_type, d.bias, channel, bias);
#pragma unroll
        for (int e = 0; e < V; ++e) factor[e] *= rstd[e];
      }
    } else {
      sample<T, V>(d, channel, shift);
      if (team == 0) {
#pragma unroll
        for (int e = 0; e < V; ++e) shifts[lane * V + e] = shift[e];
      }
    }
  }

  float a[V] = {}, b[V] = {};
  auto add = [&](int stage) {
    for (int i = own * stage / kStages; i < own * (stage + 1) / kStages; ++i) {
      const int at = (i * kThreads + thread) * V;
      float x[V], g[V];
      load_v<V>(xs + at, x);
      if constexpr (kBackward) {
        load_v<V>(gs + at, g);
        if (d.through != BatchNorm::open) {
          pass_gate<V, V>(d, x, shift, factor, bias, g);
          store_v<V>(gs + at, g);  // the last pass takes them as they are
        }
      }
#pragma unroll
      for (int e = 0; e < V; ++e) {
        const float centred = x[e] - shift[e], first = kBackward ? g[e] : centred;
        a[e] += first;
        b[e] = fmaf(first, centred, b[e]);
      }
    }
  };
  wait_copies<3>();
  add(0);
  wait_copies<2>();
  add(1);
  wait_copies<1>();
  add(2);
  wait_copies<0>();
  add(3);

  // Sums of threads in f32, all others in f64 and in an order that depends on the sizes alone.
  const int columns = 2 * plan.width;
  store_v<V>(of_threads + team * columns + lane * V, a);
  store_v<V>(of_threads + team * columns + plan.width + lane * V, b);
  __syncthreads();
  const int column = thread % columns, part = thread / columns, part_count = kThreads / columns;
  double sum = 0;
  for (int t = part; t < plan.teams; t += part_count) sum += of_threads[t * columns + column];
  parts[thread] = sum;
  __syncthreads();
  if (thread < columns) {
    for (int p = 1; p < part_count; ++p) sum += parts[p * columns + thread];
    of_block[thread] = sum;
  }
  cluster_arrive();
  cluster_wait();
  if (thread < columns) {
    sum = 0;
#pragma unroll 8
    for (int r = 0; r < s.blocks; ++r) sum += in_block(of_block, r)[thread];
    of_cluster[thread] = sum;
  }
  cluster_arrive();  // no block ends while another reads its sums
  __syncthreads();
  if (finishes) {
    const NormTable t =
        finish_channel<kBackward>(d, mine, known, of_cluster[thread], of_cluster[plan.width + thread],
                                  kBackward ? 0.0f : shifts[thread], rank == 0);
#pragma unroll
    for (int i = 0; i < 3; ++i) table[i * plan.width + thread] = t.v[i];
  }
  __syncthreads();

  float one[V], two[V], three[V];
  load_v<V>(table + lane * V, one);
  load_v<V>(table + plan.width + lane * V, two);
  load_v<V>(table + 2 * plan.width + lane * V, three);
  bool by_image = false;
  if constexpr (kEnd == NormEnd::steps)
    for (int i = 0; i < d.epilogue.count; ++i)
      by_image |= d.epilogue.steps[i].where == EpilogueStep::image_channel;
  const bool wanted = kBackward ? d.dx != nullptr : d.y != nullptr;
#pragma unroll 4
  for (int i = 0; wanted && i < own; ++i) {
    const int at = (i * kThreads + thread) * V;
    const int64_t to = start + i * step;
    float x[V], g[V];  // g: of the gradient, or what is added
    if (kEnd == NormEnd::sum_and_bounds) load_v<V>(static_cast<const T*>(d.added) + to, g);
    load_v<V>(xs + at, x);
    if constexpr (kBackward) {
      load_v<V>(gs + at, g);
#pragma unroll
      for (int e = 0; e < V; ++e) x[e] = fmaf(one[e], g[e], fmaf(three[e], x[e] - shift[e], two[e]));
      store_v<V>(static_cast<T*>(d.dx) + to, x);
    } else {
#pragma unroll
      for (int e = 0; e < V; ++e) x[e] = fmaf(x[e] - one[e], two[e], three[e]);
      const int image = by_image ? static_cast<int>((first_row + team + i * plan.teams) / d.places) : 0;
      end_norm<T, V, kEnd>(d, x, g, to, image, channel);
      store_v<V>(static_cast<T*>(d.y) + to, x);
    }
  }
  cluster_wait();
}

}  // namespace pelton::backend::cuda
