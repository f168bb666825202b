// SPDX-License-Identifier: Apache-2.0
// What the families of composites share: checks of float operands, and the f32 rule of their decompositions.
#pragma once

#include "ir/builder.h"
#include "ir/ops/common.h"

namespace pelton::ir {

// Input i is a tensor of f64, f32, f16 or bf16.
void require_float(InferContext& c, size_t i, std::string_view constraint);
// Inputs a and b have one element type.
void require_same_type(InferContext& c, size_t a, size_t b, std::string_view constraint);
// Input `small` broadcasts to the shape of input `big` without changing it.
void require_broadcasts_into(InferContext& c, size_t small, size_t big, std::string_view constraint);
// Input i holds one element (any rank).
void require_single(InferContext& c, size_t i, std::string_view constraint);

// f32 for f16 and bf16, the type itself otherwise: what sensitive ops compute and report statistics in.
DType wide_type(DType t);

// Axis attribute in [-rank, rank) as an index.
inline int64_t wrap_axis(int64_t axis, int64_t rank) {
  return axis < 0 ? axis + rank : axis;
}
// first, first + 1, ... last - 1.
Ints axis_range(int64_t first, int64_t last);

// f applied to every element in f64, rounded once.
template <class F>
Tensor map_real(const Tensor& x, F&& f) {
  std::vector<double> v = to_doubles(x);
  for (double& e : v) e = f(e);
  return from_doubles(x.dtype(), x.dims(), v);
}

// Value of input i, or `otherwise` for every element if it is absent.
std::vector<double> doubles_or(const EvalContext& c, size_t i, int64_t count, double otherwise);

}  // namespace pelton::ir
