// SPDX-License-Identifier: Apache-2.0
// The sizes of a run: symbols bound by inputs and state, solved from the checks of the graph, and refused
// where they break one.
#include <algorithm>
#include <set>

#include "interp/interpreter.h"
#include "ir/fact.h"
#include "runtime/frame.h"

namespace pelton::runtime {

using namespace ir;

namespace {

bool all_known(const Dim& d, const SymbolValues& symbols) {
  std::set<std::string> names;
  d.collect_symbols(names);
  return std::all_of(names.begin(), names.end(), [&](const auto& n) { return symbols.count(n) != 0; });
}

// A size whose maker is gone may still be named by a check: N of "N == 2*M" once M is known.
void solve_sizes(const std::vector<Fact>& checks, SymbolValues& symbols) {
  auto solve = [&](const Dim& unknown, const Dim& by) {
    auto symbol = unknown.as_symbol();
    if (!symbol || symbols.count(*symbol) || !all_known(by, symbols)) return false;
    symbols[*symbol] = by.eval(symbols);
    return true;
  };
  for (bool found = true; found;) {
    found = false;
    for (const Fact& f : checks)
      if (f.relation == Fact::Relation::equal) found |= solve(f.left, f.right) || solve(f.right, f.left);
  }
}

}  // namespace

void Frame::find_sizes(const SymbolValues& outer) {
  if (sizes_known_ && outer == outer_) {
    if (region_.segments().size() > 1) symbols_ = base_symbols_;
    return;
  }
  const Graph& g = region_.graph();
  outer_ = outer;
  symbols_ = outer;
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    const Type& type = g.type(g.inputs[i]);
    if (!type.is_tensor()) continue;
    if (!type.ranked)
      fail(ErrorCode::bad_shape, cat("the plan does not know the rank of ", type.str()), input_place(i),
           "compile the model with --shape name=AxBxC");
    if (!inputs_[i].tensor.defined()) fail(ErrorCode::usage, "has no value", input_place(i));
    interp::bind_symbols(type, inputs_[i].tensor.dims(), symbols_, input_place(i));
  }
  for (size_t i = 0; i < g.slots.size(); ++i)
    interp::bind_symbols(g.slots[i].type, state_[owner_[i]].dims(), symbols_,
                         cat("state slot '", g.slots[i].name, "'"));
  for (const auto& [name, value] : symbols_)
    if (auto it = g.symbols->ranges.find(name); it != g.symbols->ranges.end() && region_.depth() == 0)
      if (value < it->second.min || value > it->second.max)
        fail(ErrorCode::bad_shape,
             cat("size ", name, " = ", value, " is outside the compiled range ", it->second.min, " to ",
                 it->second.max),
             cat("graph '", g.name, "'"), "compile the model with a wider --shape range");
  solve_sizes(g.checks, symbols_);
  late_checks_.clear();
  for (const Fact& f : g.checks)
    if (!require_check(f, symbols_)) late_checks_.push_back(&f);
  base_symbols_ = symbols_;
  loaded_[0].program.reset();
  sizes_known_ = true;
}

void Frame::require_late_checks(size_t segment) {
  if (segment == 0)
    open_checks_ = late_checks_;
  else
    std::erase_if(open_checks_, [&](const Fact* f) { return require_check(*f, symbols_); });
}

bool Frame::breaks_a_guard() const {
  for (const Fact& f : region_.graph().guards) {
    if (all_known(f.left, symbols_) && all_known(f.right, symbols_) && !f.holds(symbols_)) return true;
  }
  return false;
}

}  // namespace pelton::runtime
