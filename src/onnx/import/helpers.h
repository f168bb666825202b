// SPDX-License-Identifier: Apache-2.0
// Steps that several import families share.
#pragma once

#include "onnx/import/node_context.h"

namespace pelton::onnx {

// Operator sets below 7 broadcast only on request (`broadcast`, `axis`), from the left at `axis`.
ValueId legacy_broadcast(NodeContext& c, ValueId a, ValueId b);

// Axes from the attribute or, from operator set `input_since` on, from input `i`; empty if absent.
Ints axes_of(NodeContext& c, size_t i, int64_t input_since, std::string_view attr = "axes");

// x as a matrix [product of dims before axis, product from axis on].
ValueId flatten_at(NodeContext& c, ValueId x, int64_t axis);

// Slices [start, start + size) of one axis with known sizes.
ValueId slice_axis(NodeContext& c, ValueId x, int64_t axis, Dim start, Dim size);
// Consecutive parts of one axis.
std::vector<ValueId> split_axis(NodeContext& c, ValueId x, int64_t axis, const Shape& sizes);

// One row of a sum: scale * x + bias, by tensors broadcast along axis 1 (per channel).
ValueId per_channel(NodeContext& c, ValueId v, int64_t rank);

ValueId reduce(NodeContext& c, std::string_view op, ValueId x, Ints axes, bool keep_dims);
ValueId concat(NodeContext& c, std::vector<ValueId> parts, int64_t axis);
ValueId to_scalar(NodeContext& c, ValueId v);  // one element of any rank as rank 0
// A tensor of zeros of this type.
ValueId zeros(NodeContext& c, DType dtype, const Shape& shape);
ValueId filled(NodeContext& c, DType dtype, const Shape& shape, double value);

// The element type a model computes `t` in when ops demand at least f32.
inline DType at_least_f32(DType t) {
  return t == DType::f16 || t == DType::bf16 ? DType::f32 : t;
}

}  // namespace pelton::onnx
