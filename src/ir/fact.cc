// SPDX-License-Identifier: Apache-2.0
#include "ir/fact.h"

#include <algorithm>
#include <set>

#include "ir/builder.h"

namespace pelton::ir {

bool Fact::holds(const SymbolValues& values) const {
  int64_t a = left.eval(values), b = right.eval(values);
  switch (relation) {
    case Relation::equal:
      return a == b;
    case Relation::not_equal:
      return a != b;
    case Relation::at_most:
      return a <= b;
    case Relation::divisible:
      return b == -1 || (b != 0 && a % b == 0);  // the least integer % -1 may not be asked
  }
  return false;
}

std::string Fact::str() const {
  switch (relation) {
    case Relation::equal:
      return cat(left.str(), " == ", right.str());
    case Relation::not_equal:
      return cat(left.str(), " != ", right.str());
    case Relation::at_most:
      return cat(left.str(), " <= ", right.str());
    case Relation::divisible:
      return cat(left.str(), " % ", right.str(), " == 0");
  }
  return "";
}

bool require_check(const Fact& f, const SymbolValues& sizes) {
  std::set<std::string> names;
  f.left.collect_symbols(names);
  f.right.collect_symbols(names);
  if (!std::all_of(names.begin(), names.end(), [&](const auto& n) { return sizes.count(n) != 0; }))
    return false;
  if (f.holds(sizes)) return true;
  if (names.empty()) fail(ErrorCode::bad_shape, "the run takes a branch that no sizes allow", f.reason);
  fail(ErrorCode::bad_shape,
       cat("sizes must satisfy ", f.str(), ", but they are ", f.left.eval(sizes), " and ",
           f.right.eval(sizes)),
       f.reason);
}

void require_checks(const Graph& graph, const SymbolValues& sizes) {
  for (const Fact& f : graph.checks) require_check(f, sizes);
}

bool is_misfit(const Error& error) {
  return error.code() == ErrorCode::bad_shape && error.fix().empty();
}

bool make_impossible(Graph& graph, const Graph& like, const std::vector<Type>& inputs, std::string why) {
  std::set<std::string> known;
  for (const Type& t : inputs)
    for (const Dim& d : t.shape) d.collect_symbols(known);
  for (ValueId v : like.outputs)
    if (!like.type(v).is_tensor() || !like.type(v).ranked) return false;
  Builder b(graph);
  for (ValueId v : like.outputs) {
    const Type& t = like.type(v);
    Shape shape = t.shape;
    for (Dim& d : shape) {
      std::set<std::string> names;
      d.collect_symbols(names);
      if (!std::includes(known.begin(), known.end(), names.begin(), names.end())) d = 0;
    }
    const ValueId zero =
        b.constant(t.dtype == DType::string ? Tensor(DType::string, {}) : Tensor::zeros(t.dtype, {}));
    graph.outputs.push_back(b.broadcast_to(zero, std::move(shape)));
  }
  graph.checks.push_back({Fact::Relation::equal, 0, 1, std::move(why)});
  return true;
}

}  // namespace pelton::ir
