// SPDX-License-Identifier: Apache-2.0
// The sizes of a convolution's window in the int fields that our kernels' problems share.
#pragma once

#include "backend/cuda/conv/problem.h"
#include "backend/cuda/own/host.h"

namespace pelton::backend::cuda {

inline int small(int64_t v) {
  return static_cast<int>(v);
}
// Whether they hold the sizes, and the count of result places.
inline bool fits_int(const ConvProblem& p) {
  for (const Dims* dims : {&p.x.dims, &p.y.dims, &p.w, &p.window.low, &p.window.strides, &p.window.dilations})
    for (int64_t d : *dims)
      if (d > (1 << 24) || d < -(1 << 24)) return false;
  return p.x.dims[0] * element_count(Dims(p.y.dims.begin() + 2, p.y.dims.end())) < (int64_t{1} << 31);
}
// Sizes of a window over rows and columns; one spatial axis counts as columns.
template <class G>
void set_window(G& g, const ConvProblem& p) {
  const size_t s = p.spatial();
  auto at = [&](const Dims& v, size_t axis, int64_t otherwise) {
    return small(axis + s < 2 ? otherwise : v[axis + s - 2]);
  };
  auto size = [&](const Dims& v, size_t axis) { return small(axis + s < 2 ? 1 : v[axis + s]); };
  g.n = small(p.x.dims[0]);
  g.c = small(p.x.dims[1]);
  g.h = size(p.x.dims, 0);
  g.w_ = size(p.x.dims, 1);
  g.p = size(p.y.dims, 0);
  g.q = size(p.y.dims, 1);
  g.r = size(p.w, 0);
  g.s = size(p.w, 1);
  g.stride_h = at(p.window.strides, 0, 1);
  g.stride_w = at(p.window.strides, 1, 1);
  g.pad_h = at(p.window.low, 0, 0);
  g.pad_w = at(p.window.low, 1, 0);
  g.dilation_h = at(p.window.dilations, 0, 1);
  g.dilation_w = at(p.window.dilations, 1, 1);
  if constexpr (requires { g.type; }) g.type = elem(p.x.dtype);
  g.y_type = elem(p.y.dtype);
}

}  // namespace pelton::backend::cuda
