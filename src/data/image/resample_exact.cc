// SPDX-License-Identifier: Apache-2.0
#include "data/image/resample_exact.h"

namespace pelton::data {

Tensor resample_exact(Match match, PlaneView view, const Axis& x, const Axis& y, Filter filter,
                      bool antialias) {
  switch (match) {
    case Match::pillow:
      if (!antialias && filter != Filter::nearest)
        fail(ErrorCode::usage, "match = \"pillow\" has no resize without antialiasing", "resize",
             "set antialias = true");
      return resample_pillow(view, x, y, filter);
    case Match::torchvision:
      return resample_torchvision(view, x, y, filter, antialias);
    case Match::opencv:
      return resample_opencv(view, x, y, filter, antialias);
    case Match::none:
      break;
  }
  PELTON_CHECK(false, "no library to match");
}

}  // namespace pelton::data
