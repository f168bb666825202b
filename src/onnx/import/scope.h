// SPDX-License-Identifier: Apache-2.0
// Names in ONNX are lexical: a sub-graph sees the values around it. IR sub-graphs are closed, so a name found
// outside becomes an input of the sub-graph and is recorded as a capture.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "onnx/proto/model_view.h"

namespace pelton::onnx {

// A graph under construction with the value names taken so far.
struct GraphBuild {
  explicit GraphBuild(std::string name) : graph(std::move(name)), builder(graph) {}
  GraphBuild(const GraphBuild&) = delete;
  GraphBuild& operator=(const GraphBuild&) = delete;
  // Names the value unless it has a name, or the name is taken.
  void name_value(ir::ValueId v, std::string_view name);

  ir::Graph graph;
  ir::Builder builder;
  std::set<std::string, std::less<>> taken;
};

// Where initializers come from.
struct TensorSource {
  std::shared_ptr<const void> owner;
  ExternalSource* external = nullptr;
};

class Scope {
 public:
  // parent: the scope whose names are visible; null for a model and for a function body. prefix: put before
  // the names of values that the graph has on behalf of a function or an inlined branch.
  Scope(GraphBuild& build, Scope* parent, const TensorSource& source, std::string prefix = {})
      : build_(build), parent_(parent), source_(source), prefix_(std::move(prefix)) {}

  GraphBuild& build() { return build_; }
  ir::Builder& builder() { return build_.builder; }
  const TensorSource& source() const { return source_; }
  void add_initializers(const GraphView& graph);
  bool has_initializer(std::string_view name) const { return initializers_.count(name) > 0; }

  void define(std::string_view name, ir::ValueId value);  // bad_format if the name is defined already
  ir::ValueId find(std::string_view name);                // none if nothing of that name is visible
  bool visible(std::string_view name) const;

  struct Capture {
    ir::ValueId outer, inner;  // in the parent's graph, in this one
  };
  const std::vector<Capture>& captures() const { return captures_; }
  // The input of this graph that stands for a value of the parent's graph.
  ir::ValueId capture(ir::ValueId outer, std::string_view name);

 private:
  GraphBuild& build_;
  Scope* parent_;
  TensorSource source_;
  std::string prefix_;
  std::map<std::string_view, ir::ValueId> values_;
  std::map<std::string_view, const TensorView*> initializers_;
  std::map<std::string_view, wire::Span> sparse_;
  std::vector<Capture> captures_;
};

}  // namespace pelton::onnx
