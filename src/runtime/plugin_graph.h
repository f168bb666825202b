// SPDX-License-Identifier: Apache-2.0
// The callbacks of plug-ins that build graphs: decompositions and gradients.
#pragma once

#include <vector>

#include "ir/gradient.h"
#include "pelton/c/plugin.h"

namespace pelton::runtime {

std::vector<ir::ValueId> plugin_decompose(const pelton_custom_op& op, ir::Builder& b, const ir::Node& node);
// By build_gradient, or by the op that `gradient` names.
void plugin_gradient(const pelton_custom_op& op, ir::GradientContext& context);

}  // namespace pelton::runtime
