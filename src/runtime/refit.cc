// SPDX-License-Identifier: Apache-2.0
#include "runtime/refit.h"

#include <algorithm>
#include <set>

#include "ir/op.h"
#include "tensor/narrow.h"
#include "tensor/transpose.h"

namespace pelton::runtime {

using namespace ir;

namespace {

class Refit {
 public:
  explicit Refit(const std::map<std::string, Tensor>& weights) : weights_(weights) {}

  // Constants of the graph that a weight names; the names are struck off those that are missing.
  void apply(Graph& g, std::set<std::string>& missing) const {
    for (NodeId id : std::vector<NodeId>(g.order())) {
      const Node& n = g[id];
      if (!n.is("constant")) continue;
      const Tensor old = n.get_tensor("value");
      Tensor value;
      std::string first;
      auto take = [&](const std::string& name, bool transpose) {
        const auto it = weights_.find(name);
        if (name.empty() || it == weights_.end()) return;
        missing.erase(name);
        const Tensor given = as_held(name, it->second, old, transpose);
        if (value.defined() && !value.same_bytes(given))
          fail(ErrorCode::usage, cat("is one weight with '", first, "' in this plan, but the values differ"),
               cat("weight '", name, "'"), "give values that agree, or either of them alone");
        value = given;
        first = name;
      };
      take(g[n.outputs[0]].name, false);
      for (const std::string& name : n.get_strings("same_names")) take(name, false);
      for (const std::string& name : n.get_strings("transposed_names")) take(name, true);
      if (value.defined()) g.edit(id).attrs["value"] = value;
    }
  }

 private:
  static Tensor as_held(const std::string& name, const Tensor& given, const Tensor& held, bool transpose) {
    Dims dims = held.dims();
    if (transpose) std::swap(dims[0], dims[1]);
    const bool rounds =
        given.dtype() == DType::f32 && (held.dtype() == DType::f16 || held.dtype() == DType::bf16);
    if ((held.dtype() != given.dtype() && !rounds) || given.dims() != dims)
      fail(ErrorCode::bad_shape, cat("expected ", pelton::name(held.dtype()), dims, ", got ", given.str()),
           cat("weight '", name, "'"));
    const Tensor value = rounds ? narrowed(given, held.dtype()) : given;
    return transpose ? transposed(value) : value;
  }
  const std::map<std::string, Tensor>& weights_;
};

}  // namespace

std::shared_ptr<const Plan> refit(const Plan& plan, const std::map<std::string, Tensor>& weights) {
  std::string which = weights.empty() ? "" : cat("weight '", weights.begin()->first, "'");
  if (plan.has_option(kFrozen))
    fail(ErrorCode::usage, "the plan was compiled with frozen weights", which, "compile it without --frozen");
  const Refit refit(weights);
  std::set<std::string> names;
  for (const auto& [name, value] : weights) names.insert(name);
  auto made = std::make_shared<Plan>(plan);
  std::set<std::string> missing = names;
  refit.apply(made->graph, missing);
  if (plan.unguarded && missing.empty()) {
    auto unguarded = std::make_shared<Plan>(*plan.unguarded);
    missing = names;
    refit.apply(unguarded->graph, missing);
    made->unguarded = unguarded;
  }
  if (!missing.empty())
    fail(ErrorCode::bad_name, cat("the plan has no weight '", *missing.begin(), "'"), "",
         "it does not exist, or compilation folded it into another; compile the new model instead");
  return made;
}

}  // namespace pelton::runtime
