// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/node_context.h"

#include <algorithm>

#include "onnx/import/constant_value.h"
#include "onnx/import/importer.h"
#include "onnx/import/remedy.h"
#include "onnx/import/run_sizes.h"

namespace pelton::onnx {

NodeContext::NodeContext(Importer& the_importer, Scope& the_scope, const NodeView& the_node, int64_t version)
    : importer(the_importer), scope(the_scope), node(the_node), opset(version), b(the_scope.builder()) {}

std::string NodeContext::place() const {
  std::string op(node.op_type);
  if (!node.domain.empty()) op = cat(node.domain, "::", op);
  if (!node.name.empty()) return cat(op, " '", node.name, "'");
  return node.outputs.empty() ? op : cat(op, " that yields '", node.outputs[0], "'");
}

void NodeContext::refuse(ErrorCode code, std::string_view what, std::string_view fix) const {
  fail(code, std::string(what), {}, std::string(fix));
}

ValueId NodeContext::in(size_t i) {
  if (!has(i)) refuse(ErrorCode::bad_format, cat("input ", i, " is required and absent"));
  ValueId v = scope.find(node.inputs[i]);
  if (!v) refuse(ErrorCode::bad_format, cat("input '", node.inputs[i], "' is not produced by anything"));
  return v;
}

std::vector<ValueId> NodeContext::all_inputs() {
  std::vector<ValueId> out;
  for (size_t i = 0; i < input_count(); ++i) out.push_back(in(i));
  return out;
}

void NodeContext::out(size_t i, ValueId value) {
  if (wants(i)) scope.define(node.outputs[i], value);
}

const AttributeView* NodeContext::find_attr(std::string_view name) const {
  for (const AttributeView& a : node.attributes)
    if (a.name == name) return &a;
  return nullptr;
}

namespace {

void expect_type(const NodeContext& c, const AttributeView& a, AttributeView::Type type,
                 std::string_view what) {
  if (a.type != type) c.refuse(ErrorCode::bad_format, cat("attribute '", a.name, "' is not ", what));
}

}  // namespace

int64_t NodeContext::get_int(std::string_view name, int64_t otherwise) const {
  const AttributeView* a = find_attr(name);
  if (!a) return otherwise;
  expect_type(*this, *a, AttributeView::Type::i, "an integer");
  return a->i;
}
int64_t NodeContext::need_int(std::string_view name) const {
  if (!has_attr(name)) refuse(ErrorCode::bad_format, cat("attribute '", name, "' is required and absent"));
  return get_int(name, 0);
}
double NodeContext::get_real(std::string_view name, double otherwise) const {
  const AttributeView* a = find_attr(name);
  if (!a) return otherwise;
  expect_type(*this, *a, AttributeView::Type::f, "a number");
  return static_cast<double>(a->f);
}
std::string NodeContext::get_text(std::string_view name, std::string_view otherwise) const {
  const AttributeView* a = find_attr(name);
  if (!a) return std::string(otherwise);
  expect_type(*this, *a, AttributeView::Type::s, "a text");
  return std::string(a->s);
}
Ints NodeContext::get_ints(std::string_view name) const {
  const AttributeView* a = find_attr(name);
  if (!a) return {};
  expect_type(*this, *a, AttributeView::Type::ints, "a list of integers");
  return a->ints;
}
Floats NodeContext::get_reals(std::string_view name) const {
  const AttributeView* a = find_attr(name);
  if (!a) return {};
  expect_type(*this, *a, AttributeView::Type::floats, "a list of numbers");
  return {a->floats.begin(), a->floats.end()};
}
Strings NodeContext::get_texts(std::string_view name) const {
  const AttributeView* a = find_attr(name);
  if (!a) return {};
  expect_type(*this, *a, AttributeView::Type::strings, "a list of texts");
  return {a->strings.begin(), a->strings.end()};
}
Tensor NodeContext::get_tensor(std::string_view name) const {
  const AttributeView* a = find_attr(name);
  if (!a) return {};
  expect_type(*this, *a, AttributeView::Type::t, "a tensor");
  return to_tensor(a->tensors[0], scope.source().owner, scope.source().external);
}
const GraphView& NodeContext::need_graph(std::string_view name) const {
  const AttributeView* a = find_attr(name);
  if (!a) refuse(ErrorCode::bad_format, cat("attribute '", name, "' is required and absent"));
  expect_type(*this, *a, AttributeView::Type::g, "a graph");
  return *a->graphs[0];
}
DType NodeContext::get_dtype(std::string_view name, DType otherwise) const {
  const AttributeView* a = find_attr(name);
  if (!a) return otherwise;
  if (a->type == AttributeView::Type::s) {  // "FLOAT", as opsets below 6 wrote it
    for (int64_t t = 1; t <= 16; ++t) {
      static constexpr std::string_view names[] = {
          "",     "FLOAT",   "UINT8",  "INT8",   "UINT16", "INT16",     "INT32",      "INT64",   "STRING",
          "BOOL", "FLOAT16", "DOUBLE", "UINT32", "UINT64", "COMPLEX64", "COMPLEX128", "BFLOAT16"};
      if (a->s == names[t]) return *dtype_from_onnx(t);
    }
    refuse(ErrorCode::bad_type, cat("attribute '", name, "' names the unknown type \"", a->s, "\""));
  }
  expect_type(*this, *a, AttributeView::Type::i, "an element type");
  auto t = dtype_from_onnx(a->i);
  if (!t || onnx_is_complex(a->i))
    refuse(ErrorCode::bad_type, cat("element type ", onnx_type_name(a->i), " is not supported"));
  return *t;
}

namespace {

// A number that was read becomes part of a node. Where something else reads the constant too, new values by
// its name would change that alone.
void forget_name(ir::Graph& g, ValueId v) {
  if (const Tensor* t = g.constant(v); t && is_float(t->dtype())) g.edit(v).name.clear();
}

}  // namespace

std::optional<Tensor> NodeContext::value_of(ValueId v) const {
  forget_name(b.graph(), v);
  return constant_value(b.graph(), v);
}

std::optional<Contents> NodeContext::contents_of(ValueId v) const {
  const ir::Value& value = b.graph()[v];
  if (value.contents) return value.contents;
  if (!value.type.is_tensor() || !is_int(value.type.dtype)) return {};
  auto t = value_of(v);
  if (!t || t->rank() > 1 || t->count() > 4096) return {};
  Contents out;
  for (int64_t x : to_ints(*t)) out.emplace_back(x);
  return out;
}

Tensor NodeContext::need_value(ValueId v, std::string_view what) {
  forget_name(b.graph(), v);
  if (auto t = constant_value(b.graph(), v, importer.known_inputs(b.graph()))) return *t;
  refuse(ErrorCode::bad_shape, cat(what, " must be known when the model is read"),
         remedy_of_value(importer.model_graph(), b.graph(), v));
}

Contents NodeContext::need_contents(size_t i, std::string_view what) {
  if (auto known = contents_of(in(i))) return *known;
  Contents out;
  for (int64_t x : need_ints(i, what)) out.emplace_back(x);
  return out;
}

Contents NodeContext::sizes_in(size_t i, std::string_view what) {
  const ValueId v = in(i);
  if (auto known = contents_of(v)) return *known;
  if (constant_value(b.graph(), v, importer.known_inputs(b.graph()))) return to_shape(need_ints(i, what));
  return run_sizes(*this, v, what);
}

Ints NodeContext::need_ints(size_t i, std::string_view what) {
  Tensor t = need_value(in(i), what);
  if (!is_int(t.dtype())) refuse(ErrorCode::bad_type, cat(what, " are ", name(t.dtype()), ", not integers"));
  return to_ints(t);
}

double NodeContext::need_real(size_t i, std::string_view what) {
  Tensor t = need_value(in(i), what);
  if (t.count() != 1) refuse(ErrorCode::bad_shape, cat(what, " is ", t.str(), ", not one number"));
  return t.get_double(0);
}

int64_t NodeContext::axis(int64_t value, int64_t rank) const {
  if (value < -rank || value >= rank)
    refuse(ErrorCode::bad_shape, cat("axis ", value, " is outside a tensor of rank ", rank));
  return value < 0 ? value + rank : value;
}
Ints NodeContext::axes(Ints values, int64_t rank) const {
  for (int64_t& v : values) v = axis(v, rank);
  std::sort(values.begin(), values.end());
  if (std::adjacent_find(values.begin(), values.end()) != values.end())
    refuse(ErrorCode::bad_shape, cat("axes ", values, " name a dimension twice"));
  return values;
}
int64_t NodeContext::need_const(const Dim& d, std::string_view what) const {
  if (d.is_const()) return d.value();
  std::set<std::string> symbols;
  d.collect_symbols(symbols);
  refuse(ErrorCode::bad_shape, cat(what, " is ", d.str(), ", but must be a fixed size"),
         remedy_of_sizes(importer.model_graph(), symbols));
}

}  // namespace pelton::onnx
