// SPDX-License-Identifier: Apache-2.0
// The families of the op table; table.cc calls each once.
#pragma once

#include <deque>

#include "ir/op.h"

namespace pelton::ir {

using OpRows = std::deque<OpDef>;  // rows never move

void add_pointwise(OpRows& rows);
void add_cast(OpRows& rows);
void add_shape(OpRows& rows);
void add_layout(OpRows& rows);
void add_reduce(OpRows& rows);
void add_index(OpRows& rows);
void add_select(OpRows& rows);
void add_contract(OpRows& rows);
void add_conv(OpRows& rows);
void add_pool(OpRows& rows);
void add_picture(OpRows& rows);
void add_sort(OpRows& rows);
void add_dynamic_shape(OpRows& rows);
void add_einsum(OpRows& rows);
void add_conv_taps(OpRows& rows);
void add_region(OpRows& rows);
void add_resample(OpRows& rows);
void add_activation(OpRows& rows);
void add_norm(OpRows& rows);
void add_control(OpRows& rows);
void add_quantize(OpRows& rows);
void add_rnn(OpRows& rows);
void add_sequence(OpRows& rows);
void add_random(OpRows& rows);
void add_attention(OpRows& rows);
void add_collective(OpRows& rows);
void add_fft(OpRows& rows);
void add_loss(OpRows& rows);
void add_trees(OpRows& rows);
void add_text(OpRows& rows);
void add_norm_backward(OpRows& rows);
void add_loss_backward(OpRows& rows);
void add_attention_backward(OpRows& rows);
void add_conv_backward(OpRows& rows);
void add_pool_backward(OpRows& rows);

}  // namespace pelton::ir
