// SPDX-License-Identifier: Apache-2.0
// Sequences and optionals.
#include "onnx/import/helpers.h"
#include "onnx/import/importer.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

ValueId index(NodeContext& c, size_t i) {
  return c.b.cast(to_scalar(c, c.in(i)), DType::i64);
}

void construct(NodeContext& c) {
  c.out(0, c.b.op("seq_make", c.all_inputs()));
}
void empty(NodeContext& c) {
  c.out(0, c.b.op("seq_empty", {}, {{"dtype", c.get_dtype("dtype", DType::f32)}}));
}
void insert(NodeContext& c) {
  std::vector<ValueId> inputs{c.in(0), c.in(1)};
  if (c.has(2)) inputs.push_back(index(c, 2));
  c.out(0, c.b.op("seq_insert", inputs));
}
void erase(NodeContext& c) {
  std::vector<ValueId> inputs{c.in(0)};
  if (c.has(1)) inputs.push_back(index(c, 1));
  c.out(0, c.b.op("seq_erase", inputs));
}
void at(NodeContext& c) {
  c.out(0, c.b.op("seq_at", {c.in(0), index(c, 1)}));
}
void length(NodeContext& c) {
  c.out(0, c.b.op("seq_length", {c.in(0)}));
}
void concat_from(NodeContext& c) {
  c.out(0, c.b.op("seq_concat", {c.in(0)},
                  {{"axis", c.need_int("axis")}, {"new_axis", c.get_int("new_axis", 0) != 0}}));
}
void split_to(NodeContext& c) {
  ValueId x = c.in(0);
  std::vector<ValueId> inputs{x};
  if (c.has(1)) inputs.push_back(c.b.cast(c.in(1), DType::i64));
  // With sizes the axis always stays.
  c.out(0, c.b.op("seq_split", inputs,
                  {{"axis", c.axis(c.get_int("axis", 0), c.b.rank(x))},
                   {"keep_dims", c.has(1) || c.get_int("keepdims", 1) != 0}}));
}

// A loop over the first sequence; the body sees the elements of every sequence input and the tensors as they
// are.
void map(NodeContext& c) {
  const GraphView& view = c.need_graph("body");
  std::vector<ValueId> inputs = c.all_inputs();
  if (view.inputs.size() != inputs.size())
    c.refuse(ErrorCode::bad_format,
             cat("has ", inputs.size(), " inputs and a body that takes ", view.inputs.size()));
  GraphBuild body("map");
  body.graph.symbols = c.b.graph().symbols;
  body.builder.set_name(c.b.node_name());
  Scope scope(body, &c.scope, c.scope.source());
  ValueId turn = body.graph.add_input(ir::Type::tensor(DType::i64, {}));
  ValueId condition = body.graph.add_input(ir::Type::tensor(DType::boolean, {}));
  std::vector<ValueId> inner;
  for (size_t i = 0; i < inputs.size(); ++i) {
    ValueId v = scope.capture(inputs[i], c.node.inputs[i]);
    inner.push_back(body.builder.type(v).kind == ir::TypeKind::sequence ? body.builder.op("seq_at", {v, turn})
                                                                        : v);
  }
  std::vector<ValueId> results = c.importer.import_inline(view, inner, scope);
  std::vector<ValueId> carried, initial;
  body.graph.outputs = {condition};
  std::vector<ValueId> captured(body.graph.inputs.begin() + 2, body.graph.inputs.end());
  for (ValueId r : results) {
    initial.push_back(c.b.op("seq_empty", {}, {{"dtype", body.builder.dtype(r)}}));
    carried.push_back(body.graph.add_input(ir::Type::sequence(body.builder.type(r))));
    body.graph.outputs.push_back(body.builder.op("seq_insert", {carried.back(), r}));
  }
  body.graph.inputs = {turn, condition};
  body.graph.inputs.insert(body.graph.inputs.end(), carried.begin(), carried.end());
  body.graph.inputs.insert(body.graph.inputs.end(), captured.begin(), captured.end());
  std::vector<ValueId> all{c.b.op("seq_length", {inputs.at(0)}), ValueId{}};
  all.insert(all.end(), initial.begin(), initial.end());
  for (const auto& k : scope.captures()) all.push_back(k.outer);
  auto y = c.b.ops("loop", all,
                   {{"body", ir::GraphPtr(std::make_shared<ir::Graph>(std::move(body.graph)))},
                    {"carried", static_cast<int64_t>(results.size())}},
                   results.size());
  for (size_t i = 0; i < y.size(); ++i) c.out(i, y[i]);
}

void optional(NodeContext& c) {
  if (c.has(0)) return c.out(0, c.b.op("opt_make", {c.in(0)}));
  const AttributeView* a = c.find_attr("type");
  if (!a || a->types.size() != 1) c.refuse(ErrorCode::bad_format, "has neither a value nor a type");
  c.out(0, c.b.op("opt_make", {}, {{"like", c.importer.type_of(a->types[0], "type").str()}}));
}
void has_element(NodeContext& c) {
  if (!c.has(0)) return c.out(0, c.b.constant(Tensor::scalar(false)));
  ValueId x = c.in(0);
  bool certain =
      c.b.type(x).kind != ir::TypeKind::optional;  // a plain value counts as an optional that has one
  c.out(0, certain ? c.b.constant(Tensor::scalar(true)) : c.b.op("opt_has", {x}));
}
void get_element(NodeContext& c) {
  ValueId x = c.in(0);
  c.out(0, c.b.type(x).kind == ir::TypeKind::optional ? c.b.op("opt_get", {x}) : x);
}

}  // namespace

void add_sequence(ImportTable& table) {
  table.add("SequenceConstruct", construct);
  table.add("SequenceEmpty", empty);
  table.add("SequenceInsert", insert);
  table.add("SequenceErase", erase);
  table.add("SequenceAt", at);
  table.add("SequenceLength", length);
  table.add("SequenceMap", map);
  table.add("ConcatFromSequence", concat_from);
  table.add("SplitToSequence", split_to);
  table.add("Optional", optional);
  table.add("OptionalHasElement", has_element);
  table.add("OptionalGetElement", get_element);
}

}  // namespace pelton::onnx
