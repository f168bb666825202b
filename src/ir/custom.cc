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

}  // namespace pelton::ir
