// SPDX-License-Identifier: Apache-2.0
#include "runtime/refit.h"

#include "ir/op.h"

namespace pelton::runtime {

using namespace ir;

std::shared_ptr<const Plan> refit(const Plan& plan, const std::map<std::string, Tensor>& weights) {
  std::string which = weights.empty() ? "" : cat("weight '", weights.begin()->first, "'");
  if (plan.has_option(kFrozen))
    fail(ErrorCode::usage, "the plan was compiled with frozen weights", which, "compile it without --frozen");
  auto made = std::make_shared<Plan>(plan);
  auto replace = [&](Graph& g, const std::string& name, const Tensor& value) {
    for (NodeId id : g.order()) {
      const Node& n = g[id];
      if (!n.is("constant") || g[n.outputs[0]].name != name) continue;
      const Tensor& old = n.get_tensor("value");
      if (old.dtype() != value.dtype() || old.dims() != value.dims())
        fail(ErrorCode::bad_shape, cat("expected ", old.str(), ", got ", value.str()),
             cat("weight '", name, "'"));
      g.edit(id).attrs["value"] = value;
      return true;
    }
    return false;
  };
  std::shared_ptr<Plan> unguarded = plan.unguarded ? std::make_shared<Plan>(*plan.unguarded) : nullptr;
  for (const auto& [name, value] : weights) {
    bool found = replace(made->graph, name, value);
    if (!found || (unguarded && !replace(unguarded->graph, name, value)))
      fail(ErrorCode::bad_name, cat("the plan has no weight '", name, "'"), "",
           "it does not exist, or compilation folded it into another; compile the new model instead");
  }
  made->unguarded = unguarded;
  return made;
}

}  // namespace pelton::runtime
