// SPDX-License-Identifier: Apache-2.0
// Copies between strided views: the one loop nest behind transpose, slice, concat, pad, tile and their kind.
#pragma once

#include "backend/cpu/support.h"

namespace pelton::backend::cpu {

// Elements of `width` bytes; strides in elements, `from` may have zeros (repeats) and negative ones, `to` has
// no two indices at one place.
class StridedCopy {
 public:
  StridedCopy(Dims sizes, std::vector<int64_t> from, std::vector<int64_t> to, int64_t width);
  // Starts are the addresses of element (0, ..., 0).
  void run(const void* from, void* to) const;

 private:
  void rows(int64_t begin, int64_t end, const std::byte* from, std::byte* to) const;

  // Outer loops, then the two inner ones [height, length]; along `length` the target has stride 1 if any loop
  // has; along `height` the source has, where that is another loop (a transposition).
  Dims outer_;
  std::vector<int64_t> outer_from_, outer_to_;
  int64_t height_ = 1, height_from_ = 0, height_to_ = 0;
  int64_t length_ = 1, length_from_ = 1, length_to_ = 1;
  int64_t width_ = 1, rows_ = 1, grain_ = 1;
};

// Dims and strides of a tensor as it is stored: [N, C/b, S..., b] for blocked layouts, [N, S..., C] for nhwc.
// `axis` becomes the index of that logical axis (the block index of channels).
Dims physical_dims(const Dims& dims, const ir::Layout& layout, int64_t* axis = nullptr);

}  // namespace pelton::backend::cpu
