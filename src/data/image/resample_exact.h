// SPDX-License-Identifier: Apache-2.0
// Resizes with the arithmetic of other libraries, for pipelines that must see the same pixels as a model was
// trained on. Each file states whose arithmetic it follows and how exact it is.
#pragma once

#include "data/image/filter_table.h"
#include "data/image/resample.h"

namespace pelton::data {

// u8 [y.n, x.n, channels]. Neither axis is mirrored. Combinations that a library does not have are usage
// errors.
Tensor resample_exact(Match match, PlaneView view, const Axis& x, const Axis& y, Filter filter,
                      bool antialias);

Tensor resample_pillow(PlaneView view, const Axis& x, const Axis& y, Filter filter);
Tensor resample_torchvision(PlaneView view, const Axis& x, const Axis& y, Filter filter, bool antialias);
Tensor resample_opencv(PlaneView view, const Axis& x, const Axis& y, Filter filter, bool antialias);

}  // namespace pelton::data
