// SPDX-License-Identifier: Apache-2.0
// What the ai.onnx.ml ops share.
#pragma once

#include "onnx/import/node_context.h"

namespace pelton::onnx {

ValueId row(NodeContext& c, const Floats& v);  // f32[n]
ValueId as_f32(NodeContext& c, ValueId x);
// Attribute post_transform applied to scores [N, classes].
ValueId post_transform(NodeContext& c, ValueId scores);
class ImportTable;
void add_svm(ImportTable& table);  // entered by add_ml_dense
// The label of the greatest score of each row, by the class labels of the node.
ValueId label_of(NodeContext& c, ValueId scores);

}  // namespace pelton::onnx
