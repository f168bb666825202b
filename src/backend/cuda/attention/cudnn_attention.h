// SPDX-License-Identifier: Apache-2.0
// cuDNN's fused attention and its gradient, beside our own kernels: 16 bits, masks that are added and
// the causal one of square scores, no soft cap.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/own/attention_backward.h"

namespace pelton::backend::cuda {

class CudnnPlan;
struct CudnnMachine;

// Problems are those of our kernels; their addresses count at `run` alone.
class CudnnAttention {
 public:
  CudnnAttention(std::shared_ptr<const CudnnPlan> plan, bool sums);
  std::string name() const;
  int64_t scratch_bytes() const;
  void keep() const;  // kept.h
  void run(const Attention& problem, void* scratch, cudaStream_t stream) const;

 private:
  std::shared_ptr<const CudnnPlan> plan_;
  bool sums_ = false;
};
class CudnnAttentionBackward {
 public:
  CudnnAttentionBackward(std::shared_ptr<const CudnnPlan> plan, const AttentionBackward& problem);
  std::string name() const;
  int64_t scratch_bytes() const;
  void keep() const;  // kept.h
  void run(const AttentionBackward& problem, void* scratch, cudaStream_t stream) const;

 private:
  std::shared_ptr<const CudnnPlan> plan_;
  int64_t row_bytes_ = 0, dq_bytes_ = 0, mask_bytes_ = 0;
};

// What cuDNN offers, best first by its estimate, or the one of this name; empty where it takes the problem
// not or is missing. `sums`: log_sums are wanted. The gradient's plans add to what queries get in any order.
using CudnnAttentions = std::vector<CudnnAttention>;
using CudnnAttentionBackwards = std::vector<CudnnAttentionBackward>;
CudnnAttentions cudnn_attentions(const Attention& problem, bool sums, const std::string& only = "");
CudnnAttentionBackwards cudnn_attention_backwards(const AttentionBackward& problem,
                                                  const std::string& only = "");
// The first kind for a GPU that is not here, kept (kept.h); how many.
size_t keep_cudnn_attentions(const Attention& problem, bool sums, const CudnnMachine& machine);
std::vector<std::string> cudnn_attention_names();  // every name that a timing may choose

}  // namespace pelton::backend::cuda
