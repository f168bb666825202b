// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/gradients.h"

#include <algorithm>

namespace pelton::ir {

void set_gradients(OpRows& rows, GradientRules rules) {
  for (const auto& [op_name, rule] : rules) {
    auto row = std::find_if(rows.begin(), rows.end(), [&](const OpDef& r) { return r.name == op_name; });
    PELTON_CHECK(row != rows.end() && !row->gradient, "gradient of ", op_name, " set twice or without a row");
    row->gradient = rule;
  }
}

void fill_gradients(OpRows& rows) {
  add_pointwise_gradients(rows);
  add_reduce_gradients(rows);
  add_shape_gradients(rows);
  add_contract_gradients(rows);
  add_index_gradients(rows);
  add_activation_gradients(rows);
  add_norm_gradients(rows);
  add_loss_gradients(rows);
  add_attention_gradients(rows);
  add_conv_gradients(rows);
  add_pool_gradients(rows);
  add_random_gradients(rows);
  add_custom_gradients(rows);
}

}  // namespace pelton::ir
