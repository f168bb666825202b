// SPDX-License-Identifier: Apache-2.0
// Ops of plug-ins. A `custom` node names one by domain, name and version; the plug-in that provides it
// registers inference and, if it has them, a reference function, a gradient and a decomposition.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

namespace pelton::ir {

struct CustomOp {
  std::string domain, name;
  int64_t version = 1;
  std::function<void(InferContext&)> infer;
  std::function<void(EvalContext&)> eval;          // may be empty: then only kernels can run it
  std::function<void(GradientContext&)> gradient;  // may be empty: through the decomposition, or not at all
  // The results, built from ops of the table; may be empty. Also the definition, where `eval` is empty.
  std::function<std::vector<ValueId>(Builder&, const Node&)> decompose;
  // The node takes a token as its last operand and yields one as its last result.
  bool effects = false;
  bool in_place = false;  // the only result may lie in the bytes of an operand of its type and shape
};

void add_custom_op(CustomOp op);  // a second one of the same domain, name and version is refused (bad_name)
// Null if nothing provides it; stays valid for the life of the process.
const CustomOp* find_custom_op(const std::string& domain, const std::string& name, int64_t version);
const CustomOp* find_custom_op(const Node& node);  // null: no `custom` node, or nothing provides it
// The newest version up to `newest`; null if there is none.
const CustomOp* newest_custom_op(std::string_view domain, std::string_view name, int64_t newest);

// What the row of the op says, or the plug-in of a custom op.
Effects effects_of(const Node& node);
bool in_place(const Node& node);
// The result may lie in the bytes of this operand: of an op that writes into its data that is the data alone.
bool in_place(const Node& node, ValueId operand);

}  // namespace pelton::ir
