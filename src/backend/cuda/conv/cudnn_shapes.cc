// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/conv/cudnn_shapes.h"

#include "backend/cuda/own/host.h"

namespace pelton::backend::cuda {

Dims widened(Dims d) {
  if (d.size() == 3) d.insert(d.begin() + 2, 1);
  return d;
}

CudnnGraph::Window widened_window(const ConvWindow& w) {
  auto wide = [](Dims d, int64_t otherwise) {
    if (d.size() == 1) d.insert(d.begin(), otherwise);
    return d;
  };
  return {wide(w.strides, 1), wide(w.dilations, 1), wide(w.low, 0), wide(w.high, 0)};
}

Dims channel_strides(const Dims& dims, bool channels_last) {
  if (!channels_last) return row_major_strides(dims);
  Dims s(dims.size());
  s[1] = 1;
  int64_t step = dims[1];
  for (size_t d = dims.size(); d-- > 2;) {
    s[d] = step;
    step *= dims[d];
  }
  s[0] = step;
  return s;
}

DepthwiseBackward depthwise_backward_of(const Dims& x_dims, const Dims& g_dims, const Dims& w_dims,
                                        const ConvWindow& window, DType type, DType result) {
  const Dims x = widened(x_dims), g = widened(g_dims), w = widened(w_dims);
  const CudnnGraph::Window at = widened_window(window);
  auto small = [](int64_t v) { return static_cast<int>(v); };
  DepthwiseBackward d;
  d.type = elem(type);
  d.result_type = elem(result);
  d.n = small(x[0]);
  d.c = small(x[1]);
  d.h = small(x[2]);
  d.w = small(x[3]);
  d.p = small(g[2]);
  d.q = small(g[3]);
  d.r = small(w[2]);
  d.s = small(w[3]);
  d.stride_h = small(at.strides[0]);
  d.stride_w = small(at.strides[1]);
  d.pad_h = small(at.low[0]);
  d.pad_w = small(at.low[1]);
  d.dilation_h = small(at.dilations[0]);
  d.dilation_w = small(at.dilations[1]);
  return d;
}

}  // namespace pelton::backend::cuda
