// SPDX-License-Identifier: Apache-2.0
#include "ir/subgraph.h"

#include <algorithm>

namespace pelton::ir {
namespace {

void collect_symbols(const Type& t, std::set<std::string>& into) {
  for (const Dim& d : t.shape) d.collect_symbols(into);
  if (t.element) collect_symbols(*t.element, into);
  if (t.items)
    for (const Type& item : *t.items) collect_symbols(item, into);
}

// Symbols that fresh_symbol() makes: u0, u1, ...
bool is_fresh_name(const std::string& s) {
  return s.size() > 1 && s[0] == 'u' && s.find_first_not_of("0123456789", 1) == s.npos;
}

bool symbolic(const Graph& g) {
  std::set<std::string> found;
  for (ValueId v : g.inputs) collect_symbols(g.type(v), found);
  for (NodeId id : g.order())
    for (ValueId v : g[id].outputs) collect_symbols(g.type(v), found);
  return !found.empty();
}

// A value of type `given` may stand where `wanted` is declared (sizes aside).
bool fits(const Type& wanted, const Type& given) {
  if (wanted.kind != given.kind) return false;
  if (wanted.kind != TypeKind::tensor) return true;
  return wanted.dtype == given.dtype && (!wanted.ranked || !given.ranked || wanted.rank() == given.rank());
}

Type substitute(const Type& t, const std::map<std::string, Dim, std::less<>>& by) {
  Type out = t;
  for (Dim& d : out.shape) d = d.substitute(by);
  if (t.element) out.element = std::make_shared<const Type>(substitute(*t.element, by));
  if (t.items) {
    std::vector<Type> items;
    for (const Type& item : *t.items) items.push_back(substitute(item, by));
    out.items = std::make_shared<const std::vector<Type>>(std::move(items));
  }
  return out;
}

}  // namespace

GraphPtr with_input_types(InferContext& c, const GraphPtr& body, const std::vector<Type>& types,
                          std::string_view constraint) {
  c.require(
      body->inputs.size() == types.size(), ErrorCode::usage, constraint,
      cat("gives ", types.size(), " values to graph '", body->name, "', which takes ", body->inputs.size()));
  bool same = true;
  for (size_t i = 0; i < types.size(); ++i) {
    const Type& declared = body->type(body->inputs[i]);
    c.require(fits(declared, types[i]), ErrorCode::bad_type, constraint,
              cat("gives ", types[i].str(), " to input ", i, " of graph '", body->name, "', which takes ",
                  declared.str()));
    same &= declared == types[i];
  }
  if (same && (body->symbols == c.graph.symbols || !symbolic(*body))) return body;
  auto copy = std::make_shared<Graph>(*body);
  for (const auto& [symbol, range] : body->symbols->ranges) c.graph.symbols->ranges.emplace(symbol, range);
  copy->symbols = c.graph.symbols;
  for (size_t i = 0; i < types.size(); ++i) copy->edit(copy->inputs[i]).type = types[i];
  if (same) return copy;
  // What was known of other inputs may be too narrow for these.
  for (NodeId id : copy->order())
    for (ValueId v : (*copy)[id].outputs)
      if (Type& t = copy->edit(v).type; t.layout.is_plain())
        t = t.is_tensor() ? Type::unranked(t.dtype) : Type();
  infer_all(*copy);
  return copy;
}

void set_graph(InferContext& c, std::string_view name, GraphPtr graph) {
  c.graph.edit(c.id).attrs.find(name)->second = std::move(graph);
}

Type seen_outside(InferContext& c, size_t result, const Type& t, const Graph& body) {
  std::set<std::string> unknown, known;
  collect_symbols(t, unknown);
  for (ValueId v : c.node.inputs)
    if (v) collect_symbols(c.graph.type(v), known);
  for (const std::string& s : known) unknown.erase(s);
  for (uint32_t v = 0; !unknown.empty() && v < c.graph.value_count(); ++v) {
    known.clear();
    collect_symbols(c.graph.type(ValueId{v}), known);
    for (const std::string& s : known) unknown.erase(s);
  }
  if (unknown.empty()) return t;
  const SymbolRanges& ranges = body.symbols->ranges;
  if (!t.is_tensor()) {
    std::map<std::string, Dim, std::less<>> replacement;
    for (const std::string& s : unknown) {
      auto range = ranges.find(s);
      replacement[s] = fresh_symbol(c.graph, range == ranges.end() ? Range{} : range->second);
    }
    return substitute(t, replacement);
  }
  // A whole size, not only the symbol in it: what the run sees is the size.
  Type out = t;
  for (size_t d = 0; d < t.shape.size(); ++d) {
    std::set<std::string> names;
    t.shape[d].collect_symbols(names);
    if (std::none_of(names.begin(), names.end(), [&](const auto& s) { return unknown.count(s) != 0; }))
      continue;
    auto twin = static_cast<size_t>(std::find(t.shape.begin(), t.shape.end(), t.shape[d]) - t.shape.begin());
    out.shape[d] = twin < d ? out.shape[twin] : c.fresh_size(result, d, t.shape[d].range(ranges));
  }
  return out;
}

CarriedTypes::CarriedTypes(InferContext& c, const std::vector<Type>& initial,
                           const std::vector<Type>& body_types)
    : c_(c), types_(initial) {
  std::set<std::string> outside;
  for (ValueId v : c.node.inputs)
    if (v) collect_symbols(c.graph.type(v), outside);
  for (size_t i = 0; i < std::min(initial.size(), body_types.size()); ++i) {
    const Type& kept = body_types[i];
    if (!kept.is_tensor() || !fits(kept, initial[i]) || !kept.ranked || !initial[i].ranked) continue;
    for (size_t d = 0; d < kept.shape.size(); ++d) {
      auto s = kept.shape[d].as_symbol();
      if (!s || !is_fresh_name(*s) || outside.count(*s) || kept.shape[d] == initial[i].shape[d]) continue;
      loose_.insert(*s);
      types_[i].shape[d] = kept.shape[d];
    }
  }
}

bool CarriedTypes::cover(const std::vector<Type>& yielded, std::string_view constraint) {
  bool changed = false;
  for (size_t i = 0; i < types_.size(); ++i) {
    Type wider = widen(types_[i], yielded[i], constraint);
    changed |= !(wider == types_[i]);
    types_[i] = std::move(wider);
  }
  return changed;
}

Type CarriedTypes::widen(const Type& held, const Type& yielded, std::string_view constraint) {
  if (held == yielded) return held;
  auto mismatch = [&] {
    c_.refuse(ErrorCode::bad_type, constraint,
              cat("carries a value of type ", held.str(), " that its body turns into ", yielded.str()));
  };
  if (!fits(held, yielded)) mismatch();
  switch (held.kind) {
    case TypeKind::token:
      return held;
    case TypeKind::sequence:
      if (held.items && held.items->empty()) return Type::sequence(*yielded.element);
      if (yielded.items && yielded.items->empty()) return Type::sequence(*held.element);
      return Type::sequence(widen(*held.element, *yielded.element, constraint));
    case TypeKind::optional:
      return Type::optional(widen(*held.element, *yielded.element, constraint));
    case TypeKind::tensor:
      break;
  }
  if (!held.ranked || !yielded.ranked) return Type::unranked(held.dtype);
  Type out = held;
  SymbolRanges& ranges = c_.graph.symbols->ranges;
  for (size_t d = 0; d < out.shape.size(); ++d) {
    Dim& dim = out.shape[d];
    const Dim& other = yielded.shape[d];
    if (dim == other) continue;
    Range r = dim.range(ranges), q = other.range(ranges);
    bool covered = q.min >= r.min && q.max <= r.max;
    auto symbol = dim.as_symbol();
    if (symbol && loose_.count(*symbol)) {
      if (!covered) ranges[*symbol] = Range{};
      continue;
    }
    dim = fresh_symbol(c_.graph, {std::min(r.min, q.min), std::max(r.max, q.max)});
    loose_.insert(*dim.as_symbol());
  }
  return out;
}

}  // namespace pelton::ir
