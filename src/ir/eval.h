// SPDX-License-Identifier: Apache-2.0
// What an op's eval function sees: concrete host values, the sizes of the symbols, the random key. These
// functions are the definition of the ops: plain, obvious, f64 (or exact integer) inside, one rounding at the
// end.
#pragma once

#include <functional>

#include "ir/graph.h"
#include "ir/op.h"

namespace pelton::ir {

// A concrete value: a tensor, a sequence, an optional (empty or holding one value) or a token.
struct HostValue {
  TypeKind kind = TypeKind::tensor;
  Tensor tensor;
  std::vector<HostValue> items;  // sequence elements; optional: zero or one
  HostValue() = default;
  HostValue(Tensor t) : tensor(std::move(t)) {}  // NOLINT: tensors are values
  static HostValue sequence(std::vector<HostValue> items);
  static HostValue optional(std::vector<HostValue> zero_or_one);
  static HostValue token();
};

struct RandomKey {
  uint64_t seed = 0;
  uint64_t step = 0;
};

class EvalContext {
 public:
  const Graph& graph;
  const Node& node;
  const std::vector<HostValue>& inputs;  // one a node input; absent ones are undefined tensors
  std::vector<HostValue>& outputs;       // sized by the caller, filled by eval
  const SymbolValues& symbols;
  RandomKey random;
  // Runs a sub-graph on values for its inputs.
  const std::function<std::vector<HostValue>(const Graph&, std::vector<HostValue>)>& run;

  bool has(size_t i) const { return i < node.inputs.size() && node.inputs[i]; }
  const Tensor& in(size_t i) const { return inputs[i].tensor; }
  void out(size_t i, Tensor t) {
    if (i < outputs.size()) outputs[i] = HostValue(std::move(t));
  }
  DType out_dtype(size_t i = 0) const { return graph.type(node.outputs[i]).dtype; }
  // A dims attribute at the present sizes.
  Dims dims(std::string_view attr) const { return pelton::eval(node.get_dims(attr), symbols); }
  // Run-time counterpart of InferContext::refuse, for what only values can break.
  [[noreturn]] void refuse(ErrorCode code, std::string_view text) const;
};

}  // namespace pelton::ir
