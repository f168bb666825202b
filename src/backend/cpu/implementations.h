// SPDX-License-Identifier: Apache-2.0
// The families of CPU implementations, each added by one call; register.cc fixes their order.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend::cpu {

void add_onednn_conv(Registry& registry);
void add_onednn_matmul(Registry& registry);
void add_onednn_pool(Registry& registry);  // pooling, and changes of layout
void add_onednn_conv_backward(Registry& registry);
void add_batch_norm(Registry& registry);          // training form and backward
void add_tail_norm_backward(Registry& registry);  // layer_norm, rms_norm
void add_pool_backward(Registry& registry);
void add_dropout(Registry& registry);
void add_column_reduce(Registry& registry);    // reductions of outer axes
void add_tile_programs(Registry& registry);    // pointwise, reductions, softmax and norms, fused groups
void add_product(Registry& registry);          // f32 matmul
void add_own_contraction(Registry& registry);  // conv, conv_transpose, matmul without a library
void add_attention(Registry& registry);
void add_recurrent(Registry& registry);  // lstm, gru
void add_resample(Registry& registry);
void add_winograd(Registry& registry);  // 3x3 convolutions
void add_ranking(Registry& registry);   // topk, sort, arg_max, cumsum
void add_movement(Registry& registry);  // transpose, slice, concat, pad, tile
void add_gather(Registry& registry);
void add_scatter(Registry& registry);
void add_fill(Registry& registry);
void add_picture(Registry& registry);  // picture_resample
void add_body(Registry& registry);     // fused nodes, node by node

}  // namespace pelton::backend::cpu
