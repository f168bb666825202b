// SPDX-License-Identifier: Apache-2.0
// The convolutions' backward forms as convolutions, for targets without kernels of their own. The gradient of
// the data is the transposed convolution. The gradient of the weights is a convolution in which channels are
// the batch and the batch is summed over, strides and dilations change places, and g stands for the weights.
#include "ir/ops/composite.h"
#include "ir/ops/conv_backward.h"
#include "ir/ops/window.h"

namespace pelton::ir {

using Values = std::vector<ValueId>;

Values decompose_conv_backward_data(Builder& b, const Node& n) {
  const Shape x = n.get_dims("dims"), w = b.shape(n.inputs[1]);
  const size_t spatial = w.size() - 2;
  Window window = window_of(n, spatial);
  Ints rest;  // of the padded size that no window reaches
  for (size_t d = 0; d < spatial; ++d) {
    Dim free = x[d + 2] + window.low[d] + window.high[d] - (w[d + 2] - 1) * window.dilations[d] - 1;
    Dim left = Dim::mod(free, window.strides[d]);
    if (!left.is_const()) return {};
    rest.push_back(left.value());
  }
  Attrs attrs{{"output_padding", rest}};
  for (const char* name : {"strides", "dilations", "low", "high", "groups"})
    if (n.has_attr(name)) attrs[name] = n.attr(name);
  return {b.op("conv_transpose", {n.inputs[0], n.inputs[1]}, attrs)};
}

Values decompose_conv_backward_weights(Builder& b, const Node& n) {
  ValueId g = n.inputs[0], x = n.inputs[1];
  const Shape gs = b.shape(g), xs = b.shape(x);
  const Ints& kernel = n.get_ints("kernel");
  const int64_t groups = n.get_int("groups"), rank = b.rank(x);
  const size_t spatial = kernel.size();
  Window window = window_of(n, spatial);
  // The last pixels that no window reaches are cropped, so that the result has the size of the kernel.
  Shape high;
  for (size_t d = 0; d < spatial; ++d)
    high.push_back((gs[d + 2] - 1) * window.strides[d] + (kernel[d] - 1) * window.dilations[d] + 1 -
                   xs[d + 2] - window.low[d]);
  Shape none(xs.size(), Dim(0)), crop = none;
  for (size_t d = 0; d < spatial; ++d)
    if (high[d].range(b.graph().symbols->ranges).min < 0) {
      crop[d + 2] = high[d];
      high[d] = 0;
    }
  if (crop != none) x = b.op("pad", {x}, {{"low", none}, {"high", crop}});

  // x[N, G C', S...] as [C', G N, S...]; g[N, O, P...] as [O, N, P...].
  const Shape cropped = b.shape(x);
  const Dim each = Dim::floor_div(xs[1], groups);
  Shape apart{xs[0], groups, each}, merged{each, xs[0] * groups};
  apart.insert(apart.end(), cropped.begin() + 2, cropped.end());
  merged.insert(merged.end(), cropped.begin() + 2, cropped.end());
  Ints perm = axis_range(0, rank + 1), swap = axis_range(0, rank);
  std::swap(perm[0], perm[2]);
  std::swap(swap[0], swap[1]);
  ValueId data = b.reshape(b.transpose(b.reshape(x, apart), perm), merged);
  Attrs attrs{{"strides", window.dilations},
              {"dilations", window.strides},
              {"low", window.low},
              {"high", high},
              {"groups", groups}};
  return {b.transpose(b.op("conv", {data, b.transpose(g, swap)}, attrs), swap)};
}

}  // namespace pelton::ir
