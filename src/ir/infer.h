// SPDX-License-Identifier: Apache-2.0
// Type and shape inference: what an op's infer function sees, and running it over nodes and graphs.
#pragma once

#include "ir/graph.h"
#include "ir/op.h"

namespace pelton::ir {

class InferContext {
 public:
  InferContext(Graph& graph, NodeId id) : graph(graph), id(id), node(graph[id]) {}
  Graph& graph;
  const NodeId id;
  const Node& node;

  size_t input_count() const { return node.inputs.size(); }
  bool has(size_t i) const { return i < node.inputs.size() && node.inputs[i]; }
  const Type& type(size_t i) const;    // present inputs only
  DType dtype(size_t i) const;         // tensor inputs only, else bad_type
  const Shape& shape(size_t i) const;  // ranked tensors only, else bad_shape
  int64_t rank(size_t i) const { return static_cast<int64_t>(shape(i).size()); }
  const Tensor* constant(size_t i) const;  // null unless the input is a constant node
  // What is known of a small integer input: a constant's values, or symbolic contents.
  std::optional<Contents> contents(size_t i) const;
  const SymbolRanges& ranges() const { return graph.symbols->ranges; }

  void output(size_t i, Type type);
  void output(size_t i, DType dtype, Shape shape) { output(i, Type::tensor(dtype, std::move(shape))); }
  void output_contents(size_t i, Contents contents);
  // A size known only when the node has run: a new symbol in [range.min, range.max].
  Dim fresh(Range range);
  // The same for axis `axis` of result `i`, whose present size stays if it has one (a symbol that inference
  // gave before, or what the text form says), so that inferring again changes nothing.
  Dim fresh_size(size_t i, size_t axis, Range range);

  // Axis in [-rank, rank) to [0, rank); `rank` may exceed the input's (unsqueeze).
  int64_t axis(int64_t value, int64_t rank) const;
  Ints axes(const Ints& values, int64_t rank) const;  // sorted, duplicates refused
  // Two dims that must be equal: refused if provably not; recorded as a check of the graph if unknown.
  Dim same(const Dim& a, const Dim& b, std::string_view constraint);
  Shape broadcast(const Shape& a, const Shape& b, std::string_view constraint);
  // Throws unless `condition`; the message is "<op> '<name>' <text>", tagged with the constraint.
  void require(bool condition, ErrorCode code, std::string_view constraint, std::string_view text) const;
  [[noreturn]] void refuse(ErrorCode code, std::string_view constraint, std::string_view text) const;
};

// What is known of a small integer value: a constant's elements, or symbolic contents.
std::optional<Contents> known_contents(const Graph& graph, ValueId value);
// Checks arity and attributes, infers result types. Throws bad_type, bad_shape, usage.
void infer(Graph& graph, NodeId node);
// Re-infers every node in order; used after types of inputs or attributes changed.
void infer_all(Graph& graph);
// A new symbol of the graph's table.
Dim fresh_symbol(Graph& graph, Range range);
// The least type both fit: differing dims become fresh symbols. bad_type if dtype, kind or rank differ.
Type join(Graph& graph, const Type& a, const Type& b, std::string_view where);

}  // namespace pelton::ir
