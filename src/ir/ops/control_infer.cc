// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/control_infer.h"

namespace pelton::ir {

std::vector<Type> input_types(InferContext& c, size_t first, size_t end) {
  std::vector<Type> out;
  for (size_t i = first; i < end; ++i) out.push_back(c.type(i));
  return out;
}

GraphPtr graph_attr(InferContext& c, std::string_view name) {
  return std::get<GraphPtr>(c.node.attr(name));
}

std::vector<Type> output_types(const Graph& g, size_t first, size_t end) {
  std::vector<Type> out;
  for (size_t i = first; i < end; ++i) out.push_back(g.type(g.outputs[i]));
  return out;
}

bool one_element(InferContext& c, size_t i) {
  return equal(element_count(c.shape(i)), 1, c.ranges()) != Tri::no;
}

void require_results(InferContext& c, const Graph& body, size_t expected, std::string_view constraint) {
  c.require(
      body.outputs.size() == expected, ErrorCode::usage, constraint,
      cat("expects ", expected, " results of graph '", body.name, "', which yields ", body.outputs.size()));
}

}  // namespace pelton::ir
