// SPDX-License-Identifier: Apache-2.0
// Nodes whose op a plug-in provides.
#pragma once

#include "ir/custom.h"
#include "onnx/import/node_context.h"

namespace pelton::onnx {

// The newest version of the op up to the operator set that the model names for the domain; null if none.
const ir::CustomOp* plugin_op(const NodeView& node, int64_t opset);
// `token`: of the custom node with effects before this one, none at first; becomes that of this one.
void import_custom(NodeContext& c, const ir::CustomOp& op, ValueId& token);

}  // namespace pelton::onnx
