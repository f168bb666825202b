// SPDX-License-Identifier: Apache-2.0
// Layers: functions that append nodes and register parameters named as PyTorch names them. `name` is the
// layer's part of the path; an empty one puts the parameters at the present scope itself.
// Letters: N batch, C channels, S... spatial, L positions, D model width, I inputs, O outputs, H heads.
#pragma once

#include <optional>

#include "nn/net.h"

namespace pelton::nn {

// y[..., O] = x[..., I] weight[O, I]^T + bias[O]
struct LinearOptions {
  bool bias = true;
  std::optional<Init> weight_init, bias_init;  // none: PyTorch's default
  bool transposed = false;                     // weight is [I, O], as transformers' Conv1D stores it
};
ValueId linear(Net& net, std::string_view name, ValueId x, int64_t out, const LinearOptions& o = {});

// Lists may be shorter than the spatial rank: one entry stands for all axes; empty for 1 (padding: 0).
struct ConvOptions {
  Ints kernel, stride, padding, dilation;
  int64_t groups = 1;
  bool bias = true;
  std::optional<Init> weight_init;  // none: PyTorch's default
  Ints output_padding;              // transposed only
};
// x[N, C, S...], weight[O, C/groups, K...]
ValueId conv(Net& net, std::string_view name, ValueId x, int64_t out, const ConvOptions& o);
// weight[C, O/groups, K...]
ValueId conv_transpose(Net& net, std::string_view name, ValueId x, int64_t out, const ConvOptions& o);

// Statistics running_mean and running_var move by `momentum` towards the batch's (the variance unbiased).
// With net.valid() only the rows that count enter them.
struct BatchNormOptions {
  double eps = 1e-5, momentum = 0.1;
  std::optional<Init> weight_init;
};
ValueId batch_norm(Net& net, std::string_view name, ValueId x, const BatchNormOptions& o = {});
// The same on scale and bias that are there already, with statistics under any names.
struct BatchNormState {
  ValueId scale, bias;
  std::string mean, var;  // below the present scope
};
ValueId batch_norm(Net& net, ValueId x, const BatchNormState& state, const BatchNormOptions& o = {});
ValueId layer_norm(Net& net, std::string_view name, ValueId x, double eps = 1e-5);  // over the last axis
ValueId rms_norm(Net& net, std::string_view name, ValueId x, double eps = 1e-6);    // over the last axis
ValueId group_norm(Net& net, std::string_view name, ValueId x, int64_t groups, double eps = 1e-5);
ValueId instance_norm(Net& net, std::string_view name, ValueId x, double eps = 1e-5);
// Krizhevsky et al. 2012, with PyTorch's meaning of alpha (divided by size).
ValueId local_response_norm(Net& net, ValueId x, int64_t size, double alpha = 1e-4, double beta = 0.75,
                            double bias = 1);
// Jarrett et al. 2009: subtracts the mean of a window over space and channels, divides by the deviation there
// or by its mean over the picture where that is larger. x[N, C, H, W]
ValueId local_contrast_norm(Net& net, ValueId x, int64_t size);

// table[V, D] at ids[...] -> [..., D]
ValueId embedding(Net& net, std::string_view name, ValueId ids, int64_t count, int64_t width,
                  std::optional<Init> init = {});
// Nothing in eval mode or at ratio 0; else scaled by 1 / (1 - ratio).
ValueId dropout(Net& net, ValueId x, double ratio);
// Stochastic depth: drops whole samples of a residual branch.
ValueId drop_path(Net& net, ValueId x, double ratio);

struct PoolOptions {
  Ints kernel, stride, padding;  // empty stride: the kernel
  bool ceil = false;
  bool count_padding = true;  // average only; PyTorch's default
};
ValueId max_pool(Net& net, ValueId x, const PoolOptions& o);
ValueId avg_pool(Net& net, ValueId x, const PoolOptions& o);
ValueId global_avg_pool(Net& net, ValueId x);                                  // [N, C, S...] -> [N, C]
ValueId flatten(Net& net, ValueId x);                                          // [N, ...] -> [N, M]
ValueId upsample(Net& net, ValueId x, int64_t factor, std::string_view mode);  // "nearest", "linear"

// relu relu6 gelu gelu_tanh silu tanh sigmoid leaky_relu elu hard_swish identity; bad_name lists them.
ValueId activation(Net& net, ValueId x, std::string_view kind);

// Multi-head attention on q[N, L, D], k and v[N, M, D] that are projected already; heads divide D.
struct AttentionOptions {
  int64_t heads = 1;
  bool causal = false;
  double dropout = 0;  // of the attention weights
  ValueId mask;        // added to the scores, broadcast to [N, H, L, M]; may be none
};
ValueId attend(Net& net, ValueId q, ValueId k, ValueId v, const AttentionOptions& o);
// torch.nn.MultiheadAttention with batch_first: in_proj_weight[3D, D], in_proj_bias, out_proj.
ValueId multihead_attention(Net& net, std::string_view name, ValueId x, const AttentionOptions& o);

// x[N, L, I] -> [N, L, H]; PyTorch's weights and gate order, one layer, forward. L must be known.
ValueId lstm(Net& net, std::string_view name, ValueId x, int64_t hidden);
ValueId gru(Net& net, std::string_view name, ValueId x, int64_t hidden);

}  // namespace pelton::nn
