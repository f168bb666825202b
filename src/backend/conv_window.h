// SPDX-License-Identifier: Apache-2.0
// The window of a convolution or pooling node at exact sizes.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend {

struct ConvWindow {
  Dims kernel, strides, dilations, low, high, output_padding;  // one a spatial axis
};
// `w`: dims of the weights [O, I, K...]; `node` may lie in the body of the instance's node.
ConvWindow conv_window(const ir::Node& node, const Instance& instance, const Dims& w);
// Of a pooling node, with `spatial` axes.
ConvWindow pool_window(const ir::Node& node, const Instance& instance, size_t spatial);

}  // namespace pelton::backend
