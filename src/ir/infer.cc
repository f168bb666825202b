// SPDX-License-Identifier: Apache-2.0
#include "ir/infer.h"

#include <algorithm>

namespace pelton::ir {
namespace {

constexpr size_t kMaxContents = 64;

void check_attrs(const Graph& g, NodeId id) {
  const Node& n = g[id];
  for (const auto& [key, value] : n.attrs) {
    const AttrDef* def = n.op->find_attr(key);
    if (!def) fail(ErrorCode::usage, cat("op ", n.op->name, " has no attribute '", key, "'"), g.describe(id));
    if (def->kind != kind(value))
      fail(ErrorCode::bad_type,
           cat("attribute '", key, "' must be ", name(def->kind), ", not ", name(kind(value))),
           g.describe(id));
  }
  for (const AttrDef& def : n.op->attrs)
    if (!def.default_value && !n.has_attr(def.name))
      fail(ErrorCode::usage, cat("attribute '", def.name, "' is missing"), g.describe(id));
}

void check_arity(const Graph& g, NodeId id) {
  const Node& n = g[id];
  auto count = static_cast<int>(n.inputs.size()), results = static_cast<int>(n.outputs.size());
  const OpDef& op = *n.op;
  if (count < op.min_inputs || (op.max_inputs >= 0 && count > op.max_inputs))
    fail(ErrorCode::usage,
         cat("takes ", op.min_inputs,
             op.max_inputs == op.min_inputs ? ""
             : op.max_inputs < 0            ? " or more"
                                            : cat(" to ", op.max_inputs),
             " inputs, not ", count),
         g.describe(id));
  if (results < op.min_outputs || (op.max_outputs >= 0 && results > op.max_outputs))
    fail(ErrorCode::usage,
         cat("yields ", op.min_outputs,
             op.max_outputs == op.min_outputs ? ""
             : op.max_outputs < 0             ? " or more"
                                              : cat(" to ", op.max_outputs),
             " results, not ", results),
         g.describe(id));
  for (int i = 0; i < op.min_inputs; ++i)
    if (!n.inputs[static_cast<size_t>(i)])
      fail(ErrorCode::usage, cat("input ", i, " is missing"), g.describe(id));
}

}  // namespace

const Type& InferContext::type(size_t i) const {
  if (!has(i)) refuse(ErrorCode::usage, "", cat("needs input ", i));
  return graph.type(node.inputs[i]);
}
DType InferContext::dtype(size_t i) const {
  const Type& t = type(i);
  if (!t.is_tensor()) refuse(ErrorCode::bad_type, "", cat("input ", i, " must be a tensor, not ", t.str()));
  return t.dtype;
}
const Shape& InferContext::shape(size_t i) const {
  const Type& t = type(i);
  if (!t.is_tensor()) refuse(ErrorCode::bad_type, "", cat("input ", i, " must be a tensor, not ", t.str()));
  if (!t.ranked)
    fail(ErrorCode::bad_shape, cat("the rank of input ", i, " is not known"), graph.describe(id),
         "give the shape of the model's inputs, for example --shape name=1x3x224x224");
  return t.shape;
}
const Tensor* InferContext::constant(size_t i) const {
  return has(i) ? graph.constant(node.inputs[i]) : nullptr;
}

std::optional<Contents> InferContext::contents(size_t i) const {
  return has(i) ? known_contents(graph, node.inputs[i]) : std::nullopt;
}

std::optional<Contents> known_contents(const Graph& graph, ValueId value) {
  const Tensor* t = graph.constant(value);
  if (!t) return graph[value].contents;
  if (!is_int(t->dtype()) || t->rank() > 1 || t->count() > static_cast<int64_t>(kMaxContents))
    return std::nullopt;
  Contents c;
  for (int64_t v : to_ints(*t)) {
    if (v < 0 && t->dtype() == DType::u64) return std::nullopt;  // beyond what a dim holds
    c.emplace_back(v);
  }
  return c;
}

void InferContext::output(size_t i, Type t) {
  if (i >= node.outputs.size()) return;
  if (t.is_tensor())
    for (const Dim& d : t.shape)
      if (d.is_const() && d.value() < 0)
        refuse(ErrorCode::bad_shape, "", cat("yields a negative size: ", t.str()));
  Type& held = graph.edit(node.outputs[i]).type;
  // A layout chosen by a pass stays; ops that set one say so in the new type.
  if (t.is_tensor() && t.layout.is_plain() && held.is_tensor() && held.rank() == t.rank())
    t.layout = held.layout;
  held = std::move(t);
}
void InferContext::output_contents(size_t i, Contents c) {
  if (i < node.outputs.size() && c.size() <= kMaxContents)
    graph.edit(node.outputs[i]).contents = std::move(c);
}
Dim InferContext::fresh(Range range) {
  return fresh_symbol(graph, range);
}

Dim InferContext::fresh_size(size_t i, size_t axis, Range range) {
  if (i >= node.outputs.size()) return fresh(range);
  const Type* present = &graph.type(node.outputs[i]);
  while (present->element) present = present->element.get();
  if (present->is_tensor() && present->ranked && axis < present->shape.size()) {
    if (present->shape[axis].is_const()) return present->shape[axis];
    if (auto symbol = present->shape[axis].as_symbol())
      if (auto known = graph.symbols->ranges.find(*symbol); known != graph.symbols->ranges.end()) {
        Range& r = known->second;
        r = {std::max(r.min, range.min), std::max(r.min, std::min(r.max, range.max))};
        return present->shape[axis];
      }
  }
  return fresh(range);
}

Dim fresh_symbol(Graph& graph, Range range) {
  SymbolTable& table = *graph.symbols;
  std::string name;
  do name = cat("u", table.next_fresh++);
  while (table.ranges.count(name));
  table.ranges[name] = range;
  return Dim::symbol(name);
}

int64_t InferContext::axis(int64_t value, int64_t rank) const {
  if (value < -rank || value >= rank)
    refuse(ErrorCode::bad_shape, "", cat("axis ", value, " is outside [", -rank, ", ", rank - 1, "]"));
  return value < 0 ? value + rank : value;
}
Ints InferContext::axes(const Ints& values, int64_t rank) const {
  Ints out;
  for (int64_t v : values) out.push_back(axis(v, rank));
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end())
    refuse(ErrorCode::bad_shape, "", cat("axes ", values, " name one axis twice"));
  return out;
}

Dim InferContext::same(const Dim& a, const Dim& b, std::string_view constraint) {
  switch (equal(a, b, ranges())) {
    case Tri::yes:
      return a.is_const() ? a : b;
    case Tri::no:
      refuse(ErrorCode::bad_shape, constraint, cat("needs equal sizes, but ", a.str(), " is not ", b.str()));
    case Tri::unknown:
      break;
  }
  Fact fact{Fact::Relation::equal, a, b, graph.describe(id)};
  auto known = [&](const Fact& f) { return f.relation == fact.relation && f.left == a && f.right == b; };
  if (std::none_of(graph.checks.begin(), graph.checks.end(), known)) graph.checks.push_back(std::move(fact));
  return a.is_const() ? a : b.is_const() ? b : a;
}

Shape InferContext::broadcast(const Shape& a, const Shape& b, std::string_view constraint) {
  const Shape &big = a.size() >= b.size() ? a : b, &small = a.size() >= b.size() ? b : a;
  Shape out = big;
  for (size_t i = 0; i < small.size(); ++i) {
    Dim& d = out[big.size() - small.size() + i];
    const Dim& s = small[i];
    if (d.is_const() && s.is_const()) {
      if (d.value() != s.value() && d.value() != 1 && s.value() != 1)
        refuse(ErrorCode::bad_shape, constraint, cat("cannot broadcast ", cat(a), " with ", cat(b)));
      if (d.value() == 1) d = s;
    } else if (equal(d, s, ranges()) == Tri::yes) {
      if (s.is_const()) d = s;
    } else if (d.is_const() && d.value() > 1) {
      // s is 1 or d; the result is d either way.
    } else if (s.is_const() && s.value() > 1) {
      d = s;
    } else {
      d = Dim::broadcast(d, s);
    }
  }
  return out;
}

void InferContext::require(bool condition, ErrorCode code, std::string_view constraint,
                           std::string_view text) const {
  if (!condition) refuse(code, constraint, text);
}
void InferContext::refuse(ErrorCode code, std::string_view constraint, std::string_view text) const {
  fail(code, cat(node.op->name, " ", text),
       constraint.empty() ? graph.describe(id) : cat(graph.describe(id), ", ", constraint));
}

void infer(Graph& graph, NodeId id) {
  check_attrs(graph, id);
  check_arity(graph, id);
  for (ValueId v : graph[id].outputs) graph.edit(v).contents.reset();
  PELTON_CHECK(graph.op(id).infer, "op ", graph.op(id).name, " has no inference");
  InferContext context(graph, id);
  graph.op(id).infer(context);
}

void infer_all(Graph& graph) {
  for (NodeId id : std::vector<NodeId>(graph.order())) infer(graph, id);
}

Type join(Graph& graph, const Type& a, const Type& b, std::string_view where) {
  if (a == b) return a;
  auto mismatch = [&]() {
    fail(ErrorCode::bad_type, cat("types ", a.str(), " and ", b.str(), " do not agree"), std::string(where));
  };
  if (a.kind != b.kind) mismatch();
  if (a.kind == TypeKind::token) return a;
  if (a.kind == TypeKind::sequence) return Type::sequence(join(graph, *a.element, *b.element, where));
  if (a.kind == TypeKind::optional) return Type::optional(join(graph, *a.element, *b.element, where));
  if (a.dtype != b.dtype) mismatch();
  if (!a.ranked || !b.ranked) return Type::unranked(a.dtype);
  if (a.rank() != b.rank()) mismatch();
  Type t = a;
  for (size_t i = 0; i < t.shape.size(); ++i) {
    const Dim &x = a.shape[i], &y = b.shape[i];
    if (x == y) continue;
    Range p = x.range(graph.symbols->ranges), q = y.range(graph.symbols->ranges);
    t.shape[i] = fresh_symbol(graph, {std::min(p.min, q.min), std::max(p.max, q.max)});
  }
  return t;
}

}  // namespace pelton::ir
