// SPDX-License-Identifier: Apache-2.0
// Dims, types and tensors of the binary form.
#pragma once

#include <unordered_map>

#include "base/function_ref.h"
#include "ir/binary_bytes.h"
#include "ir/type.h"
#include "tensor/tensor.h"

namespace pelton::ir {

class ValueReader : public ByteReader {
 public:
  // `fetch` as for from_binary.
  ValueReader(std::string_view bytes, FunctionRef<Tensor(uint64_t, DType, const Dims&)> fetch)
      : ByteReader(bytes), fetch_(fetch) {}

 protected:
  static constexpr int kMaxDepth = 64;

  Dim dim();
  Shape dims();
  Type type(int depth = 0);
  Tensor tensor();

 private:
  FunctionRef<Tensor(uint64_t, DType, const Dims&)> fetch_;
  std::unordered_map<std::string_view, Dim> parsed_;
};

}  // namespace pelton::ir
