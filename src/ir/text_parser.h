// SPDX-License-Identifier: Apache-2.0
// Recursive descent over the grammar in docs/formats.md. Bounded: text size, nesting, list lengths.
#pragma once

#include <unordered_map>

#include "ir/text.h"
#include "ir/text_scanner.h"

namespace pelton::ir {

class TextParser : private TextScanner {
 public:
  using TextScanner::TextScanner;
  Graph run();
  Type run_type();
  Attrs run_attrs();

 private:
  using Labels = std::unordered_map<std::string, ValueId>;

  // text_values.cc
  Dim dim();
  Shape shape();
  Type type(int depth = 0);
  Tensor tensor();
  Attr attr(const Graph& outer);
  Attrs attr_list(const Graph& outer);
  Fact fact();

  // text_parse.cc
  Graph graph(const Graph* outer);
  void symbol(Graph& g);
  void next(Graph& g, const Labels& labels);
  void alias(Graph& g);
  uint32_t position();  // of an input or output
  void slot(Graph& g, Labels& labels);
  void node(Graph& g, Labels& labels);
  void reconcile(Graph& g, ValueId v, const Type& written);
  ValueId use(const Labels& labels);
  std::string label();
  void define(Graph& g, Labels& labels, const std::string& l, ValueId v);
  void name_after_at(Graph& g, ValueId v);

  int depth_ = 0;  // of sub-graphs
};

}  // namespace pelton::ir
