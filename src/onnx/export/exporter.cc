// SPDX-License-Identifier: Apache-2.0
#include "onnx/export/exporter.h"

#include <charconv>

#include "base/file.h"
#include "ir/infer.h"
#include "ir/op.h"
#include "onnx/export/export.h"
#include "onnx/proto/messages.h"

namespace pelton::onnx {

using ir::ValueId;

GraphExporter::GraphExporter(const ir::Graph& graph, GraphWriter& writer, GraphExporter* outer)
    : graph_(graph), writer_(writer), outer_(outer) {}

void GraphExporter::bind(ValueId v, Name name) {
  const ir::Type& t = graph_.type(v);
  if (t.is_tensor() && t.ranked)
    for (size_t i = 0; i < t.shape.size(); ++i)
      if (auto symbol = t.shape[i].as_symbol()) sources_.emplace(*symbol, Source{name, i});
  names_[v] = std::move(name);
}

Name GraphExporter::name_of(ValueId v) const {
  auto it = names_.find(v);
  PELTON_CHECK(it != names_.end(), graph_.label(v));
  return it->second;
}

Name GraphExporter::symbol(const std::string& name) {
  if (auto it = symbols_.find(name); it != symbols_.end()) return it->second;
  auto it = sources_.find(name);
  if (it == sources_.end()) return outer_ ? outer_->symbol(name) : Name();
  Name shape = writer_.op("Shape", {it->second.value});
  return symbols_[name] =
             writer_.op("Gather", {shape, writer_.integer(static_cast<int64_t>(it->second.axis))},
                        {attr("axis", int64_t{0})});
}

namespace {

// Emits the arithmetic of a dim from its text form: sums and products of symbols and of
// floordiv, mod, min, max and broadcast.
struct DimWriter {
  GraphExporter& exporter;
  std::string_view s;

  GraphWriter& w() { return exporter.writer(); }
  void blanks() {
    while (!s.empty() && s[0] == ' ') s.remove_prefix(1);
  }
  bool eat(char c) {
    blanks();
    if (s.empty() || s[0] != c) return false;
    s.remove_prefix(1);
    return true;
  }
  Name sum() {
    Name left = product();
    for (;;) {
      if (eat('+'))
        left = w().op("Add", {left, product()});
      else if (eat('-'))
        left = w().op("Sub", {left, product()});
      else
        return left;
    }
  }
  Name product() {
    Name left = atom();
    while (eat('*')) left = w().op("Mul", {left, atom()});
    return left;
  }
  Name atom() {
    blanks();
    if (eat('-')) return w().op("Neg", {atom()});
    if (!s.empty() && s[0] >= '0' && s[0] <= '9') {
      int64_t v = 0;
      auto r = std::from_chars(s.data(), s.data() + s.size(), v);
      s.remove_prefix(static_cast<size_t>(r.ptr - s.data()));
      return w().integer(v);
    }
    size_t n = 0;
    while (n < s.size() && (std::isalnum(static_cast<unsigned char>(s[n])) || s[n] == '_' || s[n] == '.'))
      ++n;
    std::string word(s.substr(0, n));
    s.remove_prefix(n);
    if (!eat('(')) {
      Name found = exporter.symbol(word);
      if (found.empty()) fail(ErrorCode::unsupported_op, cat("no value carries the size '", word, "'"));
      return found;
    }
    Name a = sum();
    eat(',');
    Name b = sum();
    eat(')');
    if (word == "min") return w().op("Min", {a, b});
    if (word == "max") return w().op("Max", {a, b});
    if (word == "broadcast") return w().op("Where", {w().op("Equal", {a, w().integer(1)}), b, a});
    Name remainder = w().op("Mod", {a, b});  // sign of the divisor, so the division below rounds down
    if (word == "mod") return remainder;
    PELTON_CHECK(word == "floordiv", word);
    return w().op("Div", {w().op("Sub", {a, remainder}), b});
  }
};

}  // namespace

Name GraphExporter::size(const Dim& d) {
  if (d.is_const()) return writer_.integer(d.value());
  std::string text = d.str();
  return DimWriter{*this, text}.sum();
}

void GraphExporter::decompose(const ir::Node& node, std::vector<Name>& results) {
  ir::Graph body("decomposed");
  body.symbols = graph_.symbols;
  std::vector<ValueId> inputs;
  for (ValueId v : node.inputs) inputs.push_back(v ? body.add_input(graph_.type(v)) : ValueId{});
  ir::NodeId copy = body.add_node(*node.op, inputs, node.attrs, node.outputs.size(), node.name);
  ir::infer(body, copy);
  body.outputs = body[copy].outputs;
  ir::expand(body, copy);
  GraphExporter inner(body, writer_, this);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i]) inner.bind(inputs[i], name_of(node.inputs[i]));
  inner.export_nodes();
  for (ValueId v : body.outputs) results.push_back(inner.name_of(v));
}

void GraphExporter::export_node(ir::NodeId id) {
  const ir::Node& node = graph_[id];
  with_place(graph_.describe(id), [&] {
    writer_.set_node_name(node.name);
    std::vector<Name> results;
    if (ExportFn fn = export_table().find(node.op->name)) {
      ExportContext c(*this, writer_, graph_, node);
      fn(c);
      results = std::move(c.results);
    } else if (node.op->decompose) {
      decompose(node, results);
    } else {
      fail(ErrorCode::unsupported_op, cat("ONNX cannot express the op '", node.op->name, "'"));
    }
    for (size_t i = 0; i < node.outputs.size() && i < results.size(); ++i)
      if (!results[i].empty()) bind(node.outputs[i], results[i]);
  });
}

void GraphExporter::export_nodes() {
  for (ir::NodeId id : graph_.order()) export_node(id);
}

std::string GraphExporter::subgraph(const ir::Graph& body, size_t formal, const std::vector<Name>& captured) {
  GraphWriter writer(writer_.state(), body.name);
  GraphExporter inner(body, writer, this);
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    ValueId v = body.inputs[i];
    if (i >= formal) {
      inner.bind(v, captured.at(i - formal));
      continue;
    }
    Name name = writer_.state().fresh("in");
    writer.add_input(name, body.type(v));
    inner.bind(v, name);
  }
  inner.export_nodes();
  for (ValueId v : body.outputs) {
    Name name = writer_.state().fresh("out");
    writer.named_copy(inner.name_of(v), name);
    writer.add_output(name, body.type(v));
  }
  return writer.finish();
}

namespace {

void note_types(const ir::Graph& graph, GraphWriter& writer) {
  for (uint32_t i = 0; i < graph.value_count(); ++i) {
    const ir::Type& t = graph.type(ValueId{i});
    if (!t.is_tensor()) continue;
    if (t.dtype == DType::bf16) writer.need_opset(22);
    if (is_float(t.dtype) && bits(t.dtype) == 8) writer.need_opset(19);
    if (bits(t.dtype) < 8) writer.need_opset(21);
    if (t.dtype == DType::f4e2m1) writer.need_opset(23);
    if (t.dtype == DType::f8e8m0) writer.need_opset(24);
    if (t.dtype == DType::i2 || t.dtype == DType::u2) writer.need_opset(25);
  }
}

int64_t ir_version_for(int64_t opset) {
  if (opset >= 26) return 13;
  if (opset == 25) return 12;
  return opset >= 23 ? 11 : 10;
}

}  // namespace

std::string export_model(const ir::Graph& graph, const ExportOptions& options) {
  if (options.opset < kOldestWritten || options.opset > kNewestWritten)
    fail(ErrorCode::usage, cat("operator set ", options.opset, " is not written"), "",
         cat("use ", kOldestWritten, " to ", kNewestWritten));
  WriterState state;
  state.opset = options.opset;
  GraphWriter writer(state, graph.name);
  note_types(graph, writer);
  GraphExporter exporter(graph, writer, nullptr);
  for (const ir::Slot& slot : graph.slots)
    if (slot.next)
      fail(ErrorCode::unsupported_op,
           cat("ONNX has no state; slot '", slot.name, "' changes from run to run"));
  std::vector<Name> outputs;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const std::string& name = graph.output_name(i);
    outputs.push_back(state.fresh(name.empty() ? cat("output", i) : name));
  }
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    ValueId v = graph.inputs[i];
    Name name = state.fresh(graph[v].name.empty() ? cat("input", i) : graph[v].name);
    writer.add_input(name, graph.type(v));
    exporter.bind(v, name);
  }
  for (const ir::Slot& slot : graph.slots)
    exporter.bind(slot.old_value,
                  writer.constant(slot.initial.defined()
                                      ? slot.initial
                                      : Tensor::zeros(slot.type.dtype, as_dims(slot.type.shape).value())));
  exporter.export_nodes();
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    writer.named_copy(exporter.name_of(graph.outputs[i]), outputs[i]);
    writer.add_output(outputs[i], graph.type(graph.outputs[i]));
  }
  wire::Writer opset, model;
  opset.bytes(pb::OperatorSetIdProto::domain, "");
  opset.integer(pb::OperatorSetIdProto::version, state.opset);
  model.integer(pb::ModelProto::ir_version, ir_version_for(state.opset));
  model.bytes(pb::ModelProto::producer_name, options.producer);
  model.bytes(pb::ModelProto::opset_import, opset.data());
  for (const auto& [domain, version] : state.domains) {
    wire::Writer import;
    import.bytes(pb::OperatorSetIdProto::domain, domain);
    import.integer(pb::OperatorSetIdProto::version, version);
    model.bytes(pb::ModelProto::opset_import, import.data());
  }
  model.bytes(pb::ModelProto::graph, writer.finish());
  return model.take();
}

void export_file(const ir::Graph& graph, const std::string& path, const ExportOptions& options) {
  write_file(path, export_model(graph, options));
}

}  // namespace pelton::onnx
