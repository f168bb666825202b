// SPDX-License-Identifier: Apache-2.0
// Sizes of whole tensors.
#include "tensor/dim.h"

namespace pelton {

Dim element_count(const Shape& shape) {
  Dim n(1);
  for (const Dim& d : shape) n = n * d;
  return n;
}

int64_t element_count(const Dims& dims) {
  // A zero anywhere makes the product zero, whatever the others are.
  int64_t n = 1;
  bool zero = false;
  for (int64_t d : dims) {
    if (d < 0) fail(ErrorCode::bad_shape, cat("negative dimension in ", dims));
    zero |= d == 0;
  }
  if (zero) return 0;
  for (int64_t d : dims)
    if (__builtin_mul_overflow(n, d, &n)) fail(ErrorCode::limit, cat("shape ", dims, " is too large"));
  return n;
}

Dims eval(const Shape& shape, const SymbolValues& values) {
  Dims out;
  out.reserve(shape.size());
  for (const Dim& d : shape) out.push_back(d.eval(values));
  return out;
}

std::optional<Dims> as_dims(const Shape& shape) {
  Dims out;
  for (const Dim& d : shape) {
    if (!d.is_const()) return std::nullopt;
    out.push_back(d.value());
  }
  return out;
}

Shape to_shape(const Dims& dims) {
  return Shape(dims.begin(), dims.end());
}

}  // namespace pelton
