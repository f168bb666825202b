// SPDX-License-Identifier: Apache-2.0
#include "ir/custom.h"

#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"

namespace pelton::ir {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::tuple<std::string, std::string, int64_t>, CustomOp> ops;
};
Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

void add_custom_op(CustomOp op) {
  PELTON_CHECK(op.infer, "custom op ", op.name, " has no inference");
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::tuple key(op.domain, op.name, op.version);
  if (r.ops.count(key))
    fail(ErrorCode::bad_name,
         cat("custom op ", op.domain, "::", op.name, " version ", op.version, " exists already"));
  r.ops.emplace(std::move(key), std::move(op));
}

const CustomOp* find_custom_op(const std::string& domain, const std::string& name, int64_t version) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto it = r.ops.find({domain, name, version});
  return it == r.ops.end() ? nullptr : &it->second;
}

const CustomOp* find_custom_op(const Node& node) {
  if (node.op->family != Family::custom) return nullptr;
  return find_custom_op(node.get_text("domain"), node.get_text("name"), node.get_int("version"));
}

const CustomOp* newest_custom_op(std::string_view domain, std::string_view name, int64_t newest) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto it = r.ops.upper_bound({std::string(domain), std::string(name), newest});
  if (it == r.ops.begin()) return nullptr;
  const CustomOp& found = (--it)->second;
  return found.domain == domain && found.name == name ? &found : nullptr;
}

Effects effects_of(const Node& node) {
  const CustomOp* op = find_custom_op(node);
  return op && op->effects ? Effects::ordered : node.op->effects;
}

bool in_place(const Node& node) {
  const CustomOp* op = find_custom_op(node);
  return node.op->alias == AliasRule::in_place || (op && op->in_place);
}

bool in_place(const Node& node, ValueId operand) {
  return in_place(node) && (node.op->family != Family::indexing || operand == node.inputs[0]);
}

}  // namespace pelton::ir
