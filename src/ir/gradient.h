// SPDX-License-Identifier: Apache-2.0
// What an op's gradient function sees: the forward node, the gradients of its results, and a builder that
// appends to the graph. A rule is made of ops of the table, so that it can be differentiated again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ir/op.h"

namespace pelton::ir {

class GradientContext {
 public:
  // `wanted`: one flag an input; gradients of other inputs may be left out.
  GradientContext(Graph& graph, NodeId id, std::vector<ValueId> result_grads, std::vector<bool> wanted);

  Builder b;
  const Node node;  // a copy: the graph grows meanwhile

  bool has(size_t i) const { return i < node.inputs.size() && node.inputs[i]; }
  bool wants(size_t i) const { return i < wanted_.size() && wanted_[i]; }
  ValueId in(size_t i) const { return has(i) ? node.inputs[i] : ValueId{}; }
  // Result i of the forward node; an optional one that it does not yield yet is added to it (its training
  // form).
  ValueId result(size_t i);
  // Gradient of result i; none where it is zero. The one of result 0 is there unless a later result's is.
  ValueId grad(size_t i = 0) const { return i < result_grads_.size() ? result_grads_[i] : ValueId{}; }
  ValueId grad_or_zeros(size_t i);

  // Gradient of input i: of its type and shape, or of a shape that its shape broadcasts to (then summed over
  // what broadcasting repeated). Not set: zero.
  void set(size_t i, ValueId gradient);
  // Makes the random stream of the forward node an attribute of it, and returns it.
  int64_t name_stream();
  // The node's rule does not cover this case: differentiate its decomposition instead.
  void use_decomposition() { decompose_ = true; }
  // Input i has no gradient although it is wanted: an unsupported_op error that names the node.
  [[noreturn]] void refuse(std::string_view why);

  const std::vector<ValueId>& input_grads() const { return input_grads_; }
  bool wants_decomposition() const { return decompose_; }

 private:
  NodeId id_;
  std::vector<ValueId> result_grads_, input_grads_;
  std::vector<bool> wanted_;
  bool decompose_ = false;
};

// Sums g over the axes along which `to` was broadcast to g's shape; the result has shape `to`. Sizes that may
// or may not be 1 are a bad_shape error.
ValueId sum_to_shape(Builder& b, ValueId g, Shape to);
ValueId zeros(Builder& b, DType dtype, Shape shape);
ValueId zeros_like(Builder& b, ValueId v);
// A size as a scalar of a float type; a constant where it is known.
ValueId size_scalar(Builder& b, const Dim& size, DType dtype);

}  // namespace pelton::ir
