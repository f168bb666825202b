// SPDX-License-Identifier: Apache-2.0
// The text form of graphs. parse(print(g)) prints the same text. Grammar in docs/formats.md.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace pelton::ir {

struct PrintOptions {
  // Tensors above this many elements print as tensor<T>(...) , which does not parse; -1: all in full.
  int64_t max_elements = -1;
  bool names = true;  // node names and sources
};
std::string print(const Graph& graph, const PrintOptions& options = {});
std::string print(const Attr& attr, const PrintOptions& options = {});
std::string print_node(const Graph& graph, NodeId node, const PrintOptions& options = {});

// bad_format errors give line and column. The graph is inferred and its types compared with those written.
Graph parse_graph(std::string_view text);
Type parse_type(std::string_view text);
Attrs parse_attrs(std::string_view text);  // "axes = [-1], keep_dims = true"; may be empty

}  // namespace pelton::ir
