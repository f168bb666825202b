// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/builder.h"

namespace pelton::ir {

std::vector<ValueId> decompose_cross_entropy(Builder& b, const Node& n);
std::vector<ValueId> decompose_nll_loss(Builder& b, const Node& n);

}  // namespace pelton::ir
