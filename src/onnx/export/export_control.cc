// SPDX-License-Identifier: Apache-2.0
// Control flow and sequences. A captured value of an IR sub-graph becomes a name of the graph around it.
#include "ir/op.h"
#include "onnx/export/exporter.h"

namespace pelton::onnx {
namespace {

std::vector<Name> from(ExportContext& c, size_t first) {
  std::vector<Name> all = c.all_inputs();
  return {all.begin() + static_cast<std::ptrdiff_t>(std::min(first, all.size())), all.end()};
}

// ONNX has no way to say that a branch refuses every run (ir/fact.h); zeros in its place would be wrong.
void require_possible(const ir::Graph& branch) {
  for (const ir::Fact& f : branch.checks)
    if (f.left.is_const() && f.right.is_const() && !f.holds({}))
      fail(ErrorCode::unsupported_op, cat("ONNX cannot express a branch that no sizes allow: ", f.reason), {},
           "export a plan that was compiled without --shape");
}

void if_op(ExportContext& c) {
  for (const char* branch : {"then", "else"}) require_possible(c.node.get_graph(branch));
  auto captured = from(c, 1);
  c.results = c.w.ops("If", {c.in(0)},
                      {graph_attr("then_branch", c.exporter.subgraph(c.node.get_graph("then"), 0, captured)),
                       graph_attr("else_branch", c.exporter.subgraph(c.node.get_graph("else"), 0, captured))},
                      c.node.outputs.size());
}
void loop(ExportContext& c) {
  auto carried = static_cast<size_t>(c.node.get_int("carried"));
  std::vector<Name> inputs = c.all_inputs();
  inputs.resize(2 + carried);
  c.results = c.w.ops(
      "Loop", inputs,
      {graph_attr("body", c.exporter.subgraph(c.node.get_graph("body"), 2 + carried, from(c, 2 + carried)))},
      c.node.outputs.size());
}
void scan(ExportContext& c) {
  auto formal = static_cast<size_t>(c.node.get_int("carried") + c.node.get_int("scanned"));
  std::vector<Name> inputs = c.all_inputs();
  inputs.resize(formal);
  std::vector<OnnxAttr> attrs{
      attr("num_scan_inputs", c.node.get_int("scanned")),
      graph_attr("body", c.exporter.subgraph(c.node.get_graph("body"), formal, from(c, formal)))};
  auto list = [&](std::string_view ir, std::string_view onnx) {
    if (!c.node.get_ints(ir).empty()) attrs.push_back(attr(onnx, c.node.get_ints(ir)));
  };
  list("axes", "scan_input_axes");
  list("reverse", "scan_input_directions");
  list("out_axes", "scan_output_axes");
  list("out_reverse", "scan_output_directions");
  c.results = c.w.ops("Scan", inputs, attrs, c.node.outputs.size());
}

// A group means its body.
void fused(ExportContext& c) {
  GraphExporter inner(c.node.get_graph("body"), c.w, &c.exporter);
  const ir::Graph& body = inner.graph();
  for (size_t i = 0; i < body.inputs.size(); ++i) inner.bind(body.inputs[i], c.in(i));
  inner.export_nodes();
  for (ir::ValueId v : body.outputs) c.results.push_back(inner.name_of(v));
}

void seq_make(ExportContext& c) {
  c.results = {c.w.op("SequenceConstruct", c.all_inputs())};
}
void seq_empty(ExportContext& c) {
  c.results = {c.w.op("SequenceEmpty", {}, {attr("dtype", c.node.get_dtype("dtype"))})};
}
void seq_insert(ExportContext& c) {
  c.results = {c.w.op("SequenceInsert", c.all_inputs())};
}
void seq_erase(ExportContext& c) {
  c.results = {c.w.op("SequenceErase", c.all_inputs())};
}
void seq_at(ExportContext& c) {
  c.results = {c.w.op("SequenceAt", c.all_inputs())};
}
void seq_length(ExportContext& c) {
  c.results = {c.w.op("SequenceLength", {c.in(0)})};
}
void seq_concat(ExportContext& c) {
  c.results = {c.w.op("ConcatFromSequence", {c.in(0)},
                      {attr("axis", c.node.get_int("axis")), attr("new_axis", c.node.get_bool("new_axis"))})};
}
void seq_split(ExportContext& c) {
  c.results = {
      c.w.op("SplitToSequence", c.all_inputs(),
             {attr("axis", c.node.get_int("axis")), attr("keepdims", c.node.get_bool("keep_dims"))})};
}
void opt_make(ExportContext& c) {
  std::vector<OnnxAttr> attrs;
  if (!c.has(0)) attrs.push_back(type_attr("type", *c.out_type().element));
  c.results = {c.w.op("Optional", c.all_inputs(), attrs)};
}
void opt_has(ExportContext& c) {
  c.results = {c.w.op("OptionalHasElement", {c.in(0)})};
}
void opt_get(ExportContext& c) {
  c.results = {c.w.op("OptionalGetElement", {c.in(0)})};
}

}  // namespace

void export_control(ExportTable& table) {
  table.add("if", if_op);
  table.add("loop", loop);
  table.add("scan", scan);
  table.add("fused", fused);
  table.add("seq_make", seq_make);
  table.add("seq_empty", seq_empty);
  table.add("seq_insert", seq_insert);
  table.add("seq_erase", seq_erase);
  table.add("seq_at", seq_at);
  table.add("seq_length", seq_length);
  table.add("seq_concat", seq_concat);
  table.add("seq_split", seq_split);
  table.add("opt_make", opt_make);
  table.add("opt_has", opt_has);
  table.add("opt_get", opt_get);
}

}  // namespace pelton::onnx
