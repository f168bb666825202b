// SPDX-License-Identifier: Apache-2.0
// Strides, dilations and pads that convolutions and poolings share.
#pragma once

#include "onnx/import/node_context.h"

namespace pelton::onnx {

struct Windows {
  Ints kernel, strides, dilations;
  Shape low, high;
};

// Window attributes of `c` for spatial dims of `x` (from dim 2 on) under this kernel.
Windows windows_of(NodeContext& c, ValueId x, Ints kernel);
// Sizes of the spatial dims of a filter, which must be fixed.
Ints kernel_of(NodeContext& c, ValueId w);

// x[N,S...,C] to [N,C,S...] and back, for ops of the runtime that have `channels_last`.
ValueId channels_first(NodeContext& c, ValueId x);
ValueId channels_last(NodeContext& c, ValueId x);

}  // namespace pelton::onnx
