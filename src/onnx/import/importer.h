// SPDX-License-Identifier: Apache-2.0
// Runs the nodes of a graph, a sub-graph or a function body in order, each through its import function.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "onnx/import/constant_value.h"
#include "onnx/import/import.h"
#include "onnx/import/input_sizes.h"
#include "onnx/import/node_context.h"

namespace pelton::onnx {

// A sub-graph imported on its own: its inputs are the formal ones, then the captures in order.
struct SubGraph {
  std::unique_ptr<GraphBuild> build;
  std::vector<Scope::Capture> captures;
};

class Importer {
 public:
  Importer(const ModelView& model, TensorSource source, const ImportOptions& options);
  ir::Graph run();

  // The nodes that lead to `results`, in order, into `scope`.
  void import_nodes(const std::vector<NodeView>& nodes, const std::vector<std::string_view>& results,
                    Scope& scope);
  void import_node(const NodeView& node, Scope& scope);

  // A sub-graph of `scope` with these types for its formal inputs; contents of inputs are known where given.
  SubGraph import_subgraph(const GraphView& view, const std::vector<ir::Type>& input_types, Scope& scope);
  // A sub-graph without inputs, its nodes added to the graph of `scope` itself; yields the results.
  std::vector<ValueId> import_inline(const GraphView& view, const std::vector<ValueId>& inputs, Scope& scope);

  // Version of a domain where the importer stands (function bodies have their own).
  int64_t opset_of(std::string_view domain) const;
  ir::Type type_of(const TypeView& view, std::string_view name);
  // Values given for the inputs of the model; null for the graph of a sub-graph.
  KnownInputs* known_inputs(const ir::Graph& graph) { return &graph == main_ ? &known_ : nullptr; }
  std::vector<std::string> fixed_inputs(const ir::Graph& graph) const;
  const ir::Graph& model_graph() const { return *main_; }  // not that of a sub-graph

 private:
  void import_function(const FunctionView& function, NodeContext& call);
  const FunctionView* find_function(const NodeView& node) const;
  void add_inputs(Scope& scope);
  void finish_outputs(Scope& scope);
  Dim dim_of(const DimView& view, std::string_view name, size_t axis);

  const ModelView& model_;
  TensorSource source_;
  const ImportOptions& options_;
  const FixedSizes fixed_;
  const OpsetMap* opsets_;  // of the model or of the function being inlined
  std::shared_ptr<ir::SymbolTable> symbols_;
  const ir::Graph* main_ = nullptr;
  KnownInputs known_;
  ValueId token_;        // of the last custom node with effects
  int depth_ = 0;        // functions and sub-graphs around the present node
  size_t imported_ = 0;  // nodes so far
};

// The order in which nodes can run: the file's own where it is valid. Nodes that lead to no result are left
// out, unless `is_kept`. `is_known`: names that exist beforehand. bad_format names a node on a cycle or a
// name without a producer.
std::vector<const NodeView*> order_nodes(const std::vector<NodeView>& nodes,
                                         const std::vector<std::string_view>& results,
                                         const std::function<bool(std::string_view)>& is_known,
                                         const std::function<bool(const NodeView&)>& is_kept);
// Names that a node takes from around it, those of its sub-graphs included.
std::vector<std::string_view> used_names(const NodeView& node);

}  // namespace pelton::onnx
