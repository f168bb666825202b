// SPDX-License-Identifier: Apache-2.0
// Walks a graph (or a sub-graph of one) and writes each node through its export function.
#pragma once

#include <map>
#include <string>

#include "onnx/export/export_context.h"

namespace pelton::onnx {

class GraphExporter {
 public:
  // outer: the exporter of the graph around a sub-graph; its symbols are visible.
  GraphExporter(const ir::Graph& graph, GraphWriter& writer, GraphExporter* outer);

  void bind(ir::ValueId v, Name name);  // and learn the symbols in its type
  Name name_of(ir::ValueId v) const;
  void export_nodes();
  // A symbol as an i64 scalar, from the shape of a value that carries it; empty if nothing does.
  Name symbol(const std::string& name);
  Name size(const Dim& d);  // i64 of rank 0
  GraphWriter& writer() { return writer_; }
  const ir::Graph& graph() const { return graph_; }

  // A closed sub-graph as GraphProto: its last inputs are captured and stand for these outer names.
  std::string subgraph(const ir::Graph& body, size_t formal, const std::vector<Name>& captured);

 private:
  void export_node(ir::NodeId id);
  void decompose(const ir::Node& node, std::vector<Name>& results);

  const ir::Graph& graph_;
  GraphWriter& writer_;
  GraphExporter* outer_;
  std::map<ir::ValueId, Name> names_;
  struct Source {
    Name value;
    size_t axis;
  };
  std::map<std::string, Source> sources_;
  std::map<std::string, Name> symbols_;
};

}  // namespace pelton::onnx
