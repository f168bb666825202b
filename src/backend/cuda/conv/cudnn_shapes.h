// SPDX-License-Identifier: Apache-2.0
// Sizes of convolutions as the libraries and our kernels of two spatial axes want them: one axis counts as
// columns.
#pragma once

#include "backend/conv_window.h"
#include "backend/cuda/conv/cudnn_graph.h"
#include "backend/cuda/own/depthwise_backward.h"

namespace pelton::backend::cuda {

// Dims [N,C,S...] with at least two spatial axes.
Dims widened(Dims dims);
CudnnGraph::Window widened_window(const ConvWindow& window);
// Strides of [N,C,S...] that lies plain or channels last.
Dims channel_strides(const Dims& dims, bool channels_last);

// Of a depthwise convolution of x whose result has the dims of g, of one or two spatial axes.
DepthwiseBackward depthwise_backward_of(const Dims& x, const Dims& g, const Dims& w, const ConvWindow& window,
                                        DType type, DType result);

}  // namespace pelton::backend::cuda
