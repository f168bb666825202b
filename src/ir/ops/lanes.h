// SPDX-License-Identifier: Apache-2.0
// A tensor seen as [outer, size, inner], where `size` spans the axes [first, last): what ops that work along
// axes (softmax, norms, quantisation) loop over.
#pragma once

#include "tensor/dim.h"

namespace pelton::ir {

struct Lanes {
  int64_t outer = 1, size = 1, inner = 1;

  Lanes(const Dims& dims, int64_t first, int64_t last) {
    for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d)
      (d < first ? outer : d < last ? size : inner) *= dims[static_cast<size_t>(d)];
  }
  // f(offset of element 0 of the lane, index of the lane in [0, outer * inner)); elements are `inner` apart.
  template <class F>
  void for_each(F&& f) const {
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i)
        f(static_cast<size_t>(o * size * inner + i), static_cast<size_t>(o * inner + i));
  }
};

}  // namespace pelton::ir
