// SPDX-License-Identifier: Apache-2.0
#include "ir/custom.h"
#include "ir/ops/gradients.h"

namespace pelton::ir {
namespace {

void custom(GradientContext& c) {
  const std::string &domain = c.node.get_text("domain"), &name = c.node.get_text("name");
  const CustomOp* op = find_custom_op(domain, name, c.node.get_int("version"));
  if (!op || !op->gradient) c.refuse(cat("custom op ", domain, "::", name, " has no gradient"));
  op->gradient(c);
}

}  // namespace

void add_custom_gradients(OpRows& rows) {
  set_gradients(rows, {{"custom", custom}});
}

}  // namespace pelton::ir
