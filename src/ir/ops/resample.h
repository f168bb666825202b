// SPDX-License-Identifier: Apache-2.0
// The taps of a resize along one axis, for the reference and for kernels that precompute them.
#pragma once

#include <string>
#include <vector>

#include "ir/eval.h"

namespace pelton::ir {

struct ResampleAxis {
  int64_t from = 0, to = 0;  // sizes before and after
  double scale = 1;          // to / from, or as given
  bool scale_given = false;
  double roi_start = 0, roi_end = 1;  // tf_crop_and_resize only
};
struct ResampleOptions {
  std::string mode, coordinates, nearest;
  double cubic = -0.75;
  bool exclude_outside = false, antialias = false;
};
struct Tap {
  int64_t index;  // in [0, from)
  double weight;
};
// Taps of output position `o`; none stands for the extrapolation value.
std::vector<Tap> resample_taps(const ResampleAxis& axis, const ResampleOptions& options, int64_t o);
ResampleOptions resample_options(const Node& node);

void eval_resample(EvalContext& c);
void eval_grid_sample(EvalContext& c);
void eval_affine_grid(EvalContext& c);

}  // namespace pelton::ir
