// SPDX-License-Identifier: Apache-2.0
#include "ir/eval.h"

namespace pelton::ir {

HostValue HostValue::sequence(std::vector<HostValue> items) {
  HostValue v;
  v.kind = TypeKind::sequence;
  v.items = std::move(items);
  return v;
}
HostValue HostValue::optional(std::vector<HostValue> zero_or_one) {
  PELTON_CHECK(zero_or_one.size() <= 1);
  HostValue v = sequence(std::move(zero_or_one));
  v.kind = TypeKind::optional;
  return v;
}
HostValue HostValue::token() {
  HostValue v;
  v.kind = TypeKind::token;
  return v;
}

void EvalContext::refuse(ErrorCode code, std::string_view text) const {
  fail(code, cat(node.op->name, " ", text),
       node.name.empty() ? std::string() : cat("node '", node.name, "'"));
}

}  // namespace pelton::ir
