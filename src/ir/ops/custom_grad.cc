// SPDX-License-Identifier: Apache-2.0
#include "ir/custom.h"
#include "ir/ops/gradients.h"

namespace pelton::ir {
namespace {

void custom(GradientContext& c) {
  const CustomOp* op = find_custom_op(c.node);
  if (op && op->gradient) return op->gradient(c);
  if (op && op->decompose) return c.use_decomposition();
  c.refuse(cat("custom op ", c.node.get_text("domain"), "::", c.node.get_text("name"), " has no gradient"));
}

}  // namespace

void add_custom_gradients(OpRows& rows) {
  set_gradients(rows, {{"custom", custom}});
}

}  // namespace pelton::ir
