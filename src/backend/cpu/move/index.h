// SPDX-License-Identifier: Apache-2.0
// Indices of gathers and scatters.
#pragma once

#include "backend/cpu/support.h"
#include "base/cat.h"

namespace pelton::backend::cpu {

inline bool is_index(DType t) {
  return t == DType::i64 || t == DType::i32;
}
inline int64_t index_at(const void* p, DType t, int64_t i) {
  return t == DType::i64 ? static_cast<const int64_t*>(p)[i] : static_cast<const int32_t*>(p)[i];
}
// Negative indices count from the end.
inline int64_t checked(int64_t i, int64_t size, const std::string& where) {
  const int64_t r = i < 0 ? i + size : i;
  if (r < 0 || r >= size)
    fail(ErrorCode::bad_shape, cat("index ", i, " is outside an axis of size ", size), where);
  return r;
}

}  // namespace pelton::backend::cpu
