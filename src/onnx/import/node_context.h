// SPDX-License-Identifier: Apache-2.0
// What the import function of one ONNX op sees: inputs as IR values, attributes, what is known of values at
// import, and where results go. Every refusal names the node.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "onnx/import/scope.h"
#include "onnx/proto/model_view.h"

namespace pelton::onnx {

class Importer;
using ir::Attrs;
using ir::Contents;
using ir::Floats;
using ir::Ints;
using ir::Strings;
using ir::ValueId;

class NodeContext {
 public:
  NodeContext(Importer& importer, Scope& scope, const NodeView& node, int64_t opset);

  Importer& importer;
  Scope& scope;
  const NodeView& node;
  const int64_t opset;  // version of the node's domain
  ir::Builder& b;

  size_t input_count() const { return node.inputs.size(); }
  bool has(size_t i) const { return i < node.inputs.size() && !node.inputs[i].empty(); }
  ValueId in(size_t i);  // bad_format if absent or unknown
  ValueId opt(size_t i) { return has(i) ? in(i) : ValueId{}; }
  std::vector<ValueId> all_inputs();

  // The result `i`; `name_it` is false for values that stand for another one (Identity).
  void out(size_t i, ValueId value);
  bool wants(size_t i) const { return i < node.outputs.size() && !node.outputs[i].empty(); }
  size_t output_count() const { return node.outputs.size(); }

  const AttributeView* find_attr(std::string_view name) const;
  bool has_attr(std::string_view name) const { return find_attr(name) != nullptr; }
  int64_t get_int(std::string_view name, int64_t otherwise) const;
  int64_t need_int(std::string_view name) const;
  double get_real(std::string_view name, double otherwise) const;
  std::string get_text(std::string_view name, std::string_view otherwise) const;
  Ints get_ints(std::string_view name) const;  // empty if absent
  Floats get_reals(std::string_view name) const;
  Strings get_texts(std::string_view name) const;
  Tensor get_tensor(std::string_view name) const;  // undefined if absent
  const GraphView& need_graph(std::string_view name) const;
  DType get_dtype(std::string_view name, DType otherwise) const;

  // The value if it follows from constants alone; computed on the spot when small.
  std::optional<Tensor> value_of(ValueId v) const;
  // Symbolic integers of a small tensor, when known.
  std::optional<Contents> contents_of(ValueId v) const;
  // A value that the op cannot do without: also from the inputs whose values the caller gave, which are then
  // fixed to them. Else bad_shape.
  Tensor need_value(ValueId v, std::string_view what);
  Contents need_contents(size_t i, std::string_view what);
  // Sizes in input `i`: known ones, given ones as in need_value, else symbols that the run learns
  // (run_sizes.h).
  Contents sizes_in(size_t i, std::string_view what);
  // Input `i` as integers known at import, else bad_shape naming it.
  Ints need_ints(size_t i, std::string_view what);
  double need_real(size_t i, std::string_view what);

  Shape shape_of(ValueId v) const { return b.shape(v); }
  const SymbolRanges& ranges() const { return b.graph().symbols->ranges; }
  int64_t axis(int64_t value, int64_t rank) const;  // [-rank, rank) to [0, rank), else bad_shape
  Ints axes(Ints values, int64_t rank) const;       // sorted, unique
  int64_t need_const(const Dim& d, std::string_view what) const;

  [[noreturn]] void refuse(ErrorCode code, std::string_view what, std::string_view fix = {}) const;
  std::string place() const;  // "Conv 'conv1'"
};

}  // namespace pelton::onnx
