// SPDX-License-Identifier: Apache-2.0
// Numbers, texts and choices of the binary form, read within bounds. Every error says at which byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tensor/dtype.h"

namespace pelton::ir {

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

 protected:
  [[noreturn]] void bad(std::string what) const;
  uint64_t u();  // LEB128
  int64_t s();   // zigzag
  // Count of items that take at least `least` bytes each.
  size_t count(size_t least);
  std::string_view raw(size_t size);
  std::string_view text() { return raw(count(1)); }
  double real();
  template <class E>
  E choice(uint64_t last, const char* what) {
    uint64_t v = u();
    if (v > last) bad(cat("there is no ", what, " ", v));
    return static_cast<E>(v);
  }
  bool flag() { return choice<uint64_t>(1, "flag") != 0; }
  DType dtype() { return choice<DType>(kDTypeCount - 1, "element type"); }
  size_t left() const { return bytes_.size() - at_; }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

}  // namespace pelton::ir
