// SPDX-License-Identifier: Apache-2.0
// Local rewriting: rules looked up by the op of the node they start from, applied until none fires.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ir/builder.h"
#include "ir/op.h"
#include "passes/pass.h"

namespace pelton::passes {

// A rule looks at one node and either leaves the graph alone (false) or replaces the node's results (true).
// Rules insert before the node they look at, so that order stays topological; the replaced node is removed as
// dead.
struct Rule {
  std::string_view name;              // "simplify/mul_one"
  std::vector<std::string_view> ops;  // where it starts; empty: every op
  bool (*apply)(ir::Graph& graph, ir::NodeId node, const Context& context);
};
bool apply_rules(ir::Graph& graph, std::span<const Rule> rules, const Context& context);

// Removes pure nodes without users, but for those that tell a size which something else names; symbols'
// checks stay. Also a pass of its own.
bool remove_dead(ir::Graph& graph);

// Builds in front of the node, nodes under its name.
ir::Builder builder_at(ir::Graph& graph, ir::NodeId node);

// Notes, while it lives, constants of the graph whose elements elements() and the functions behind it have
// given out. What a rewriting made of them cannot follow new values of theirs: forget() takes their names
// (weight_names.h). apply_rules does so for each rule.
class ElementsRead {
 public:
  explicit ElementsRead(ir::Graph& graph);
  ~ElementsRead();
  ElementsRead(const ElementsRead&) = delete;
  ElementsRead& operator=(const ElementsRead&) = delete;
  void clear();
  void forget();

 private:
  ir::Graph& graph_;
};

// --- looking around --------------------------------------------------------------------------------------
// The node that makes v if it is an `op_name`, else none.
ir::NodeId producer(const ir::Graph& graph, ir::ValueId v, std::string_view op_name);
ir::ValueId input(const ir::Graph& graph, ir::NodeId node, size_t index);
ir::ValueId result(const ir::Graph& graph, ir::NodeId node, size_t index = 0);
// The tensor of a constant, where what a rule does depends on its elements; none of another value.
const Tensor* elements(const ir::Graph& graph, ir::ValueId v);
// The value of a constant all of whose elements are equal (any shape, at least one element).
std::optional<double> uniform(const ir::Graph& graph, ir::ValueId v);
bool is_uniform(const ir::Graph& graph, ir::ValueId v, double value, double relative_tolerance = 0);
// Exactly one use, and not an output of the graph.
bool single_use(const ir::Graph& graph, ir::ValueId v);
bool same_shape(const ir::Graph& graph, ir::ValueId a, ir::ValueId b);
// For a binary node: the other operand than v; none if v is not an operand.
ir::ValueId other_operand(const ir::Graph& graph, ir::NodeId node, ir::ValueId v);
// Operands (x, c) of a commutative binary node such that c is uniform; none if neither is.
struct WithScalar {
  ir::ValueId x, scalar_value;
  double scalar;
};
std::optional<WithScalar> with_scalar(const ir::Graph& graph, ir::NodeId node);

// Replaces the single result of `node` by v, casting nothing: types must agree in dtype and shape.
void replace(ir::Graph& graph, ir::NodeId node, ir::ValueId v);

}  // namespace pelton::passes
