// SPDX-License-Identifier: Apache-2.0
// The gradient column, filled in by family after the rows stand.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>

#include "ir/gradient.h"
#include "ir/ops/families.h"

namespace pelton::ir {

using GradientRule = void (*)(GradientContext&);
using GradientRules = std::initializer_list<std::pair<std::string_view, GradientRule>>;

// Each name must be a row without a rule.
void set_gradients(OpRows& rows, GradientRules rules);
void fill_gradients(OpRows& rows);

void add_pointwise_gradients(OpRows& rows);
void add_reduce_gradients(OpRows& rows);
void add_shape_gradients(OpRows& rows);
void add_contract_gradients(OpRows& rows);
void add_index_gradients(OpRows& rows);
void add_activation_gradients(OpRows& rows);
void add_norm_gradients(OpRows& rows);
void add_loss_gradients(OpRows& rows);
void add_attention_gradients(OpRows& rows);
void add_conv_gradients(OpRows& rows);
void add_pool_gradients(OpRows& rows);
void add_random_gradients(OpRows& rows);
void add_custom_gradients(OpRows& rows);

}  // namespace pelton::ir
