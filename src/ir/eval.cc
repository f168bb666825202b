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

RandomStream random_stream(const RandomKey& key, const Node& node) {
  auto attr = static_cast<uint64_t>(node.get_int("seed"));
  return {key.seed ^ (attr * 0x9E3779B97F4A7C15u), key.step, node.stable_id};
}

void EvalContext::refuse(ErrorCode code, std::string_view text) const {
  fail(code, cat(node.op->name, " ", text),
       node.name.empty() ? std::string() : cat("node '", node.name, "'"));
}

}  // namespace pelton::ir
