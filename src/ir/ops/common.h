// SPDX-License-Identifier: Apache-2.0
// Small helpers shared by the families.
#pragma once

#include "ir/eval.h"
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/ops/families.h"

namespace pelton::ir {

// Walks the index space of `dims` in row-major order; f(index) with a Dims of the same rank.
template <class F>
void for_each_index(const Dims& dims, F&& f) {
  int64_t count = element_count(dims);
  Dims index(dims.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    f(index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}

// Element offset of a broadcast operand: dims aligned at the right, size-1 dims repeat.
inline int64_t broadcast_offset(const Dims& index, const Dims& dims, const Dims& strides) {
  int64_t offset = 0;
  size_t skip = index.size() - dims.size();
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] != 1) offset += index[skip + d] * strides[d];
  return offset;
}

// Concrete NumPy broadcast of all dims; eval-time, so sizes are known to fit.
Dims broadcast_dims(const std::vector<Dims>& operands);

// Copies single elements between tensors of one dtype, strings and packed types included.
void copy_element(Tensor& to, int64_t to_index, const Tensor& from, int64_t from_index);
// to[i] = from[map(i)] for every element of `to`; map gets the row-major index as Dims and returns an offset
// in from.
template <class F>
Tensor gather_elements_by(const Tensor& from, Dims to_dims, F&& map) {
  Tensor to =
      from.dtype() == DType::string ? Tensor(from.dtype(), to_dims) : Tensor::zeros(from.dtype(), to_dims);
  int64_t i = 0;
  for_each_index(to_dims, [&](const Dims& index) { copy_element(to, i++, from, map(index)); });
  return to;
}

bool supports_float(DType t);   // f64 f32 f16 bf16
bool supports_number(DType t);  // those and the full integers

}  // namespace pelton::ir
