// SPDX-License-Identifier: Apache-2.0
// What the export function of one IR op sees.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "onnx/export/graph_writer.h"

namespace pelton::onnx {

class GraphExporter;

class ExportContext {
 public:
  ExportContext(GraphExporter& exporter, GraphWriter& writer, const ir::Graph& graph, const ir::Node& node)
      : exporter(exporter), w(writer), graph(graph), node(node) {}
  GraphExporter& exporter;
  GraphWriter& w;
  const ir::Graph& graph;
  const ir::Node& node;
  std::vector<Name> results;  // one an output; filled by the export function

  bool has(size_t i) const { return i < node.inputs.size() && node.inputs[i]; }
  Name in(size_t i) const;  // empty if absent
  std::vector<Name> all_inputs() const;
  const ir::Type& type(size_t i) const { return graph.type(node.inputs[i]); }
  const ir::Type& out_type(size_t i = 0) const { return graph.type(node.outputs[i]); }
  DType dtype(size_t i) const { return type(i).dtype; }
  int64_t rank(size_t i) const { return type(i).rank(); }

  // Sizes as an i64 tensor [n]: a constant, or computed from the shapes of values.
  Name sizes(const Shape& dims);
  Name size(const Dim& d);                                                     // i64 of rank 0
  std::vector<int64_t> fixed(const Shape& dims, std::string_view what) const;  // refused unless all are known
  Name cast(const Name& x, DType to) { return w.op("Cast", {x}, {attr("to", to)}); }
  Name reshape(const Name& x, const Shape& dims) {
    return w.op("Reshape", {x, sizes(dims)}, {attr("allowzero", true)});
  }

  [[noreturn]] void refuse(std::string_view why) const;
};

using ExportFn = void (*)(ExportContext&);

class ExportTable {
 public:
  void add(std::string_view op, ExportFn fn) { rows_[op] = fn; }
  ExportFn find(std::string_view op) const {
    auto it = rows_.find(op);
    return it == rows_.end() ? nullptr : it->second;
  }

 private:
  std::map<std::string_view, ExportFn> rows_;
};
const ExportTable& export_table();

// One a file of this folder.
void export_pointwise(ExportTable& table);
void export_shape(ExportTable& table);
void export_contract(ExportTable& table);
void export_composite(ExportTable& table);
void export_control(ExportTable& table);
void export_edge(ExportTable& table);
void export_custom(ExportTable& table);

}  // namespace pelton::onnx
