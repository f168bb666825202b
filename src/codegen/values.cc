// SPDX-License-Identifier: Apache-2.0
#include "codegen/values.h"

#include <algorithm>
#include <set>

#include "ir/op.h"

namespace pelton::codegen {

using namespace ir;
using Kind = Statement::Kind;

bool is_reduction(const Node& n) {
  return n.op->family == Family::reduction && n.op->name.starts_with("reduce_");
}

Shape digits(const Dim& at, const Shape& shape) {
  Shape out(shape.size());
  Dim stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    // floor(at / stride) mod size; the outermost digit needs no mod.
    Dim upper = stride * shape[d];
    out[d] = Dim::floor_div(at, stride);
    bool outermost = true;
    for (size_t e = 0; e < d; ++e) outermost &= shape[e] == Dim(1);
    if (shape[d] == Dim(1))
      out[d] = 0;
    else if (!outermost)
      out[d] = out[d] - shape[d] * Dim::floor_div(at, upper);
    stride = upper;
  }
  return out;
}
Dim linear(const Shape& index, const Shape& shape) {
  Dim at = 0;
  for (size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + index[d];
  return at;
}

Values::Values(const Graph& graph, Kernel& kernel, bool strict)
    : g_(graph), k_(kernel), strict_(strict), prefix_("i") {
  // Loop variables must not be named like a size.
  std::set<std::string> symbols;
  for (uint32_t v = 0; v < g_.value_count(); ++v)
    for (const Dim& d : g_.type(ValueId{v}).shape) d.collect_symbols(symbols);
  while (std::any_of(symbols.begin(), symbols.end(),
                     [&](const std::string& s) { return s.starts_with(prefix_); }))
    prefix_ += "i";
  scopes_.push_back({&k_.body, "", {}});
}

void Values::declare() {
  auto add = [&](ValueId v, bool output, size_t i) {
    const Type& t = g_.type(v);
    if (!t.is_tensor() || !t.ranked) throw Unsupported{cat("a value of type ", t.str())};
    if (!is_compute(t.dtype)) throw Unsupported{cat("elements of ", pelton::name(t.dtype))};
    if (!t.layout.is_plain()) throw Unsupported{cat("layout ", t.layout.str())};
    k_.buffers.push_back({cat(output ? "y" : "x", i), output, t.dtype, t.shape});
  };
  for (size_t i = 0; i < g_.inputs.size(); ++i) add(g_.inputs[i], false, i);
  for (size_t i = 0; i < g_.outputs.size(); ++i) add(g_.outputs[i], true, i);
}

namespace {

void collect(const Block& block, std::set<std::string>& used, std::set<std::string>& variables) {
  for (const Statement& s : block) {
    for (const Dim& d : s.index) d.collect_symbols(used);
    for (const Bound& b : s.mask) {
      b.value.collect_symbols(used);
      b.limit.collect_symbols(used);
    }
    s.extent.collect_symbols(used);
    if (!s.variable.empty()) variables.insert(s.variable);
    collect(s.body, used, variables);
  }
}

}  // namespace

void Values::finish() {
  std::set<std::string> used, variables;
  for (const Buffer& b : k_.buffers)
    for (const Dim& d : b.dims) d.collect_symbols(used);
  collect(k_.body, used, variables);
  for (const std::string& s : used)
    if (!variables.count(s)) k_.sizes.push_back(s);
}

std::string Values::new_variable() {
  return cat(prefix_, next_variable_++);
}

void Values::open(Block& block, const std::string& variable) {
  depth_of_[variable] = scopes_.size();
  scopes_.push_back({&block, variable, {}});
}
void Values::close() {
  depth_of_.erase(scopes_.back().variable);
  scopes_.pop_back();
}

DType Values::computed(DType t) const {
  return !strict_ && (t == DType::f16 || t == DType::bf16) ? DType::f32 : t;
}

size_t Values::scope_of(const Shape& index, const Mask& mask) const {
  std::set<std::string> used;
  for (const Dim& d : index) d.collect_symbols(used);
  for (const Bound& b : mask) {
    b.value.collect_symbols(used);
    b.limit.collect_symbols(used);
  }
  // Nothing stands outside the grid loop: its iterations may run anywhere.
  size_t depth = scopes_.size() > 1 ? 1 : 0;
  for (const std::string& s : used)
    if (auto it = depth_of_.find(s); it != depth_of_.end()) depth = std::max(depth, it->second);
  return depth;
}

ScalarId Values::emit(Statement s, DType t) {
  s.result = k_.add_scalar(t);
  scopes_[target_].block->push_back(std::move(s));
  return scopes_[target_].block->back().result;
}
ScalarId Values::constant(DType t, double v) {
  Statement s;
  s.real = v;
  s.integer = is_float(t) ? 0 : static_cast<int64_t>(v);
  return emit(std::move(s), t);
}
ScalarId Values::constant_of(const Tensor& t, int64_t i) {
  Statement s;
  if (is_float(t.dtype()))
    s.real = t.get_double(i);
  else
    s.integer = t.get_int(i);
  return cast(emit(std::move(s), t.dtype()), computed(t.dtype()));
}
ScalarId Values::cast(ScalarId x, DType to) {
  if (k_.scalar_types[x] == to) return x;
  Statement s;
  s.kind = Kind::cast;
  s.operands = {x};
  return emit(std::move(s), to);
}
ScalarId Values::index_value(const Dim& at) {
  Statement s;
  s.kind = Kind::index;
  s.index = {at};
  return emit(std::move(s), DType::i64);
}
ScalarId Values::apply(std::string_view op, std::vector<ScalarId> operands, DType t) {
  Statement s;
  s.kind = Kind::apply;
  s.op = op;
  s.operands = std::move(operands);
  return emit(std::move(s), t);
}
ScalarId Values::test(const Mask& mask) {
  ScalarId all = 0;
  bool first = true;
  auto also = [&](ScalarId condition) {
    all = first ? condition : apply("and", {all, condition}, DType::boolean);
    first = false;
  };
  for (const Bound& b : mask) {
    ScalarId at = index_value(b.value);
    also(apply("ge", {at, index_value(0)}, DType::boolean));
    also(apply("lt", {at, index_value(b.limit)}, DType::boolean));
  }
  return all;
}

ScalarId Values::stored(ValueId v, const Shape& index) {
  ScalarId x = element(v, index, {});
  target_ = scopes_.size() - 1;
  return cast(x, g_.type(v).dtype);
}

ScalarId Values::element(ValueId v, const Shape& index, const Mask& mask) {
  size_t scope = scope_of(index, mask), back = target_;
  std::string key = cat(v.index, "[", index, "]");
  for (const Bound& b : mask) append(key, cat(" ", b.value, "<", b.limit));
  for (size_t i = 0; i <= scope; ++i)
    if (auto it = scopes_[i].known.find(key); it != scopes_[i].known.end()) return it->second;
  target_ = scope;
  ScalarId x = compute(v, index, mask);
  scopes_[scope].known.emplace(std::move(key), x);
  target_ = back;
  return x;
}

ScalarId Values::load(size_t input, const Shape& index, const Mask& mask) {
  Statement s;
  s.kind = Kind::load;
  s.buffer = static_cast<uint32_t>(input);
  s.index = index;
  s.mask = mask;
  DType t = k_.buffers[input].dtype;
  return cast(emit(std::move(s), t), computed(t));
}

Shape Values::operand_index(NodeId id, size_t operand, const Shape& index) const {
  const Shape& from = g_.type(g_[id].inputs[operand]).shape;
  const Shape& to = g_.type(g_[id].outputs[0]).shape;
  Shape out;
  for (size_t d = 0; d < from.size(); ++d) {
    size_t at = to.size() - from.size() + d;
    if (from[d] == Dim(1))
      out.push_back(0);
    else if (equal(from[d], to[at], g_.symbols->ranges) == Tri::yes)
      out.push_back(index[at]);
    else
      throw Unsupported{cat("it is not known whether size ", from[d].str(), " broadcasts to ", to[at].str())};
  }
  return out;
}

ScalarId Values::apply(NodeId id, const Shape& index, const Mask& mask) {
  const Node& n = g_[id];
  std::vector<ScalarId> operands;
  for (size_t i = 0; i < n.inputs.size(); ++i)
    operands.push_back(element(n.inputs[i], operand_index(id, i, index), mask));
  DType first = k_.scalar_types[operands[0]];
  if (n.is("pow")) {
    if (!is_float(first)) throw Unsupported{"pow of integers"};
    operands[1] = cast(operands[1], first);
  } else if (!n.is("select") && n.op->scalar->code.empty()) {
    throw Unsupported{cat("op ", n.op->name, " has no scalar code")};
  }
  return apply(n.op->name, std::move(operands), computed(g_.type(n.outputs[0]).dtype));
}

ScalarId Values::reduce(NodeId id, const Shape& index, const Mask& mask) {
  const Node& n = g_[id];
  const Shape& shape = g_.type(n.inputs[0]).shape;
  DType t = computed(g_.type(n.outputs[0]).dtype);
  if (t == DType::boolean) throw Unsupported{"a reduction of bool"};
  // Exact sums of integers may not fit into 64 bits; the mean of what wrapped would be wrong.
  if (n.is("reduce_mean") && !is_float(t)) throw Unsupported{"a mean of integers"};
  if (t == DType::f16 || t == DType::bf16) t = DType::f32;  // sums are f32 whatever is strict
  for (size_t i = 1; i <= target_; ++i)
    if (scopes_[i].variable != scopes_[1].variable)
      throw Unsupported{"a reduction inside the loop over a row"};
  std::vector<bool> reduced(shape.size(), false);
  for (int64_t a : n.get_ints("axes"))
    reduced[static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(shape.size()) : a)] = true;
  Shape inner;
  for (size_t d = 0; d < shape.size(); ++d)
    if (reduced[d]) inner.push_back(shape[d]);
  Statement s;
  s.kind = Kind::reduce;
  s.op = n.is("reduce_mean") ? "sum" : n.op->name.substr(std::string_view("reduce_").size());
  s.variable = new_variable();
  s.extent = element_count(inner);
  Shape lane = digits(Dim::symbol(s.variable), inner), at;
  for (size_t d = 0, next = 0, l = 0; d < shape.size(); ++d) {
    if (reduced[d]) {
      at.push_back(lane[l++]);
      next += n.get_bool("keep_dims");
    } else {
      at.push_back(index[next++]);
    }
  }
  size_t outside = target_;
  Block body;
  open(body, s.variable);
  target_ = scopes_.size() - 1;
  s.operands = {cast(element(n.inputs[0], at, mask), t)};
  close();
  s.body = std::move(body);
  target_ = outside;
  Dim count = s.extent;
  ScalarId x = emit(std::move(s), t);
  if (!n.is("reduce_mean")) return cast(x, computed(g_.type(n.outputs[0]).dtype));
  x = apply("div", {x, cast(index_value(count), t)}, t);
  return cast(x, computed(g_.type(n.outputs[0]).dtype));
}

}  // namespace pelton::codegen
