// SPDX-License-Identifier: Apache-2.0
// Attributes of an IR `conv` from the attributes that ONNX convolutions share.
#pragma once

#include "onnx/import/node_context.h"

namespace pelton::onnx {

Attrs conv_attrs(NodeContext& c, ValueId x, ValueId w);

}  // namespace pelton::onnx
