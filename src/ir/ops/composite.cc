// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/composite.h"

namespace pelton::ir {

void require_float(InferContext& c, size_t i, std::string_view constraint) {
  c.require(supports_float(c.dtype(i)), ErrorCode::bad_type, constraint,
            cat("needs f64, f32, f16 or bf16 as input ", i, ", not ", name(c.dtype(i))));
}

void require_same_type(InferContext& c, size_t a, size_t b, std::string_view constraint) {
  c.require(
      c.dtype(a) == c.dtype(b), ErrorCode::bad_type, constraint,
      cat("needs inputs ", a, " and ", b, " of one type, not ", name(c.dtype(a)), " and ", name(c.dtype(b))));
}

void require_broadcasts_into(InferContext& c, size_t small, size_t big, std::string_view constraint) {
  const Shape &from = c.shape(small), &to = c.shape(big);
  bool fits = from.size() <= to.size();
  for (size_t i = 0; fits && i < from.size(); ++i) {
    const Dim &d = from[i], &t = to[to.size() - from.size() + i];
    fits = equal(d, 1, c.ranges()) != Tri::no || equal(d, t, c.ranges()) != Tri::no;
  }
  c.require(fits, ErrorCode::bad_shape, constraint,
            cat("cannot broadcast input ", small, " of shape ", cat(from), " to ", cat(to)));
}

void require_single(InferContext& c, size_t i, std::string_view constraint) {
  c.require(equal(element_count(c.shape(i)), 1, c.ranges()) != Tri::no, ErrorCode::bad_shape, constraint,
            cat("needs one value as input ", i, ", not shape ", cat(c.shape(i))));
}

DType wide_type(DType t) {
  return t == DType::f16 || t == DType::bf16 ? DType::f32 : t;
}

Ints axis_range(int64_t first, int64_t last) {
  Ints out;
  for (int64_t a = first; a < last; ++a) out.push_back(a);
  return out;
}

std::vector<double> doubles_or(const EvalContext& c, size_t i, int64_t count, double otherwise) {
  return c.has(i) ? to_doubles(c.in(i)) : std::vector<double>(static_cast<size_t>(count), otherwise);
}

}  // namespace pelton::ir
