// SPDX-License-Identifier: Apache-2.0
// picture_resample at known sizes: what its reference function and kernels share.
#pragma once

#include "ir/builder.h"
#include "ir/eval.h"
#include "ir/image/exact.h"

namespace pelton::ir {

struct PictureResample {
  Filter filter = Filter::linear;
  Match match = Match::none;
  bool antialias = true;
  int height = 0, width = 0, channels = 0;  // of the source
  int out_height = 0, out_width = 0;        // of the result
  Axis x, y;

  // `from`, `to`: sizes of x and of the result; `size` and `origin`: those attributes at the present sizes.
  // bad_shape where nothing is there to sample or the window leaves the picture.
  PictureResample(const Node& node, const Dims& from, const Dims& to, const Dims& size, const Dims& origin);
};

// Of a text attribute; none for an unknown one.
std::optional<Filter> filter_from_name(std::string_view name);
std::optional<Match> match_from_name(std::string_view name);

// Rows y .. y + rows - 1 (rows <= 16) of the default mode, f32 [rows, out_width, channels], from a tile.
void untile(const float* tile, int rows, int width, int channels, float* out);

void eval_picture_resample(EvalContext& c);
std::vector<ValueId> decompose_picture_resample(Builder& b, const Node& node);

}  // namespace pelton::ir
