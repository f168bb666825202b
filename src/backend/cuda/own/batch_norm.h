// SPDX-License-Identifier: Apache-2.0
// Batch norm in training and its gradient: statistics over all places of a channel, then one pass that uses
// them. x[N,C,S] plain or [N,S,C]. Threads sum in f32, sums are merged in f64, in a fixed order: the same
// bits each time. Two forms: three launches that read the data twice, or one whose clusters keep it.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "backend/cuda/own/epilogue.h"

namespace pelton::backend::cuda {

struct BatchNorm {
  const void* x = nullptr;
  Elem type = Elem::f16;  // of x, y, g, dx
  bool channels_last = true;
  int n = 0, c = 0;
  int64_t places = 0;                            // S
  const void *scale = nullptr, *bias = nullptr;  // [C], of parameter_type
  Elem parameter_type = Elem::f32;
  double* scratch = nullptr;  // batch_norm_scratch_bytes()
  int multiprocessors = 132;
  int sum_blocks = 4, apply_blocks = 8;  // of a multiprocessor at most, in three launches

  // Forward: y = (x - mean) rstd scale + bias, then the steps.
  void* y = nullptr;
  Epilogue epilogue;  // its form is asked for by batch_norm_scratch_bytes(), too
  const void *old_mean = nullptr, *old_var = nullptr;  // [C], of statistic_type
  void *new_mean = nullptr, *new_var = nullptr;        // old keep + batch (1 - keep); null: not wanted
  Elem statistic_type = Elem::f32;
  float *batch_mean = nullptr, *batch_rstd = nullptr;  // [C] or null
  float eps = 0, keep = 0;

  // Set where it starts: what the steps come to, where that is a sum with a whole result and bounds (an
  // activation).
  bool simple_steps = false;
  const void* added = nullptr;  // of the type of x, or null
  float low = 0, high = 0;

  // Backward.
  const void* g = nullptr;
  const float *mean = nullptr, *rstd = nullptr;  // [C]
  void *dx = nullptr, *dscale = nullptr, *dbias = nullptr;
  // The gradient counts where the activation behind the norm let it through, which the norm's result,
  // computed again, tells: bias is then given.
  enum Gate : uint8_t { open, positive, to_six } through = open;  // above 0; in [0, 6]
  // Set where it starts: what the norm's result is before it is rounded to its type, where it passes.
  float gate_low = 0, gate_high = 0;
};
int64_t batch_norm_scratch_bytes(const BatchNorm& problem);
cudaError_t batch_norm_train(const BatchNorm& problem, cudaStream_t stream);
cudaError_t batch_norm_backward(const BatchNorm& problem, cudaStream_t stream);

// How clusters share out the channels: each has `lanes` times 16 bytes of every place, `blocks` blocks.
struct NormCluster {
  int lanes = 8, blocks = 8;
};
inline constexpr int kNormClusterThreads = 512;
// Those that hold the data (channels last, on sm_90); none: there are only the three launches.
std::vector<NormCluster> batch_norm_clusters(const BatchNorm& problem, bool backward);
cudaError_t batch_norm_train(const BatchNorm& problem, const NormCluster& cluster, cudaStream_t stream);
cudaError_t batch_norm_backward(const BatchNorm& problem, const NormCluster& cluster, cudaStream_t stream);

}  // namespace pelton::backend::cuda
