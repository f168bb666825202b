// SPDX-License-Identifier: Apache-2.0
// Appends nodes with inferred types. Names and attributes are checked as they are added.
#pragma once

#include <initializer_list>

#include "ir/graph.h"
#include "ir/infer.h"

namespace pelton::ir {

class Builder {
 public:
  // `at`: insert before this node; none: append.
  explicit Builder(Graph& graph, NodeId at = {}) : graph_(graph), at_(at) {}
  Graph& graph() { return graph_; }
  // Name given to nodes added from now on (what they came from, for messages and reports).
  void set_name(std::string node_name) { name_ = std::move(node_name); }
  const std::string& node_name() const { return name_; }

  // One result; `op_name` must be a row of the table.
  ValueId op(std::string_view op_name, std::vector<ValueId> inputs, Attrs attrs = {});
  std::vector<ValueId> ops(std::string_view op_name, std::vector<ValueId> inputs, Attrs attrs,
                           size_t output_count);

  ValueId constant(Tensor value);
  ValueId scalar(DType dtype, double value);  // rank 0
  ValueId ints(const Ints& values);           // i64[n]
  ValueId like(ValueId v, double value) { return scalar(type(v).dtype, value); }

  ValueId cast(ValueId x, DType to);               // x itself if it has the type already
  ValueId reshape(ValueId x, Shape shape);         // x itself if it has the shape already
  ValueId transpose(ValueId x, Ints perm);         // x itself if the permutation is the identity
  ValueId unsqueeze(ValueId x, const Ints& axes);  // axes of the result
  ValueId broadcast_to(ValueId x, Shape shape);
  ValueId reduce(std::string_view op_name, ValueId x, Ints axes, bool keep_dims);
  ValueId matmul(ValueId a, ValueId b) { return op("matmul", {a, b}); }
  ValueId add(ValueId a, ValueId b) { return op("add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return op("sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return op("mul", {a, b}); }
  ValueId div(ValueId a, ValueId b) { return op("div", {a, b}); }
  ValueId select(ValueId condition, ValueId yes, ValueId no) { return op("select", {condition, yes, no}); }

  const Type& type(ValueId v) const { return graph_.type(v); }
  const Shape& shape(ValueId v) const { return graph_.type(v).shape; }
  int64_t rank(ValueId v) const { return graph_.type(v).rank(); }
  DType dtype(ValueId v) const { return graph_.type(v).dtype; }

 private:
  Graph& graph_;
  NodeId at_;
  std::string name_;
};

// Replaces `node` by its decomposition and removes it; false if its op has none.
bool expand(Graph& graph, NodeId node);
// Copies the nodes of `body`, its inputs standing for `inputs`; returns what its outputs become.
std::vector<ValueId> inline_graph(Builder& b, const Graph& body, const std::vector<ValueId>& inputs);

}  // namespace pelton::ir
