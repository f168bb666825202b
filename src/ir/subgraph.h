// SPDX-License-Identifier: Apache-2.0
// Inference across the border of a sub-graph. Bodies are shared and never changed: one that must know better
// input types is copied. A body names sizes by the symbols of the graph that holds it; symbols of its own
// (sizes that appear while it runs) do not leave it.
#pragma once

#include <set>

#include "ir/infer.h"

namespace pelton::ir {

// `body` with its inputs at these types, inferred anew; `body` itself if it has them already. Refused with
// `constraint` if the number of inputs, a kind, an element type or a rank differs.
GraphPtr with_input_types(InferContext& c, const GraphPtr& body, const std::vector<Type>& types,
                          std::string_view constraint);
// Replaces the graph attribute `name` of the node.
void set_graph(InferContext& c, std::string_view name, GraphPtr graph);
// `t`, yielded by `body`, as the outer graph sees it in result `result` of the node: sizes it does not know
// become symbols of that result.
Type seen_outside(InferContext& c, size_t result, const Type& t, const Graph& body);

// Types of loop-carried values: grows them until a body that is given them yields nothing they do not cover.
class CarriedTypes {
 public:
  // `initial`: types of the carried inputs; `body_types`: those the body has now, from which symbols that an
  // earlier inference introduced are kept.
  CarriedTypes(InferContext& c, const std::vector<Type>& initial, const std::vector<Type>& body_types);
  const std::vector<Type>& types() const { return types_; }
  // Covers `yielded` as well; true if that changed anything.
  bool cover(const std::vector<Type>& yielded, std::string_view constraint);

 private:
  Type widen(const Type& held, const Type& yielded, std::string_view constraint);
  InferContext& c_;
  std::vector<Type> types_;
  std::set<std::string> loose_;  // symbols that stand for any size an iteration may have
};

}  // namespace pelton::ir
