// SPDX-License-Identifier: Apache-2.0
#include "ir/image/exact.h"

#include "base/error.h"

namespace pelton::ir {
namespace {

class Pick final : public ExactResize {
 public:
  Pick(std::vector<int> columns, std::vector<int> rows)
      : columns_(std::move(columns)), rows_(std::move(rows)) {}
  void run(const PlaneView& v, uint8_t* out, void*) const override {
    for (int y : rows_)
      for (int x : columns_)
        out = std::copy_n(v.data + (y - v.y0) * v.pitch + (x - v.x0) * v.channels, v.channels, out);
  }

 private:
  std::vector<int> columns_, rows_;
};

}  // namespace

std::unique_ptr<ExactResize> pick_resize(std::vector<int> columns, std::vector<int> rows) {
  return std::make_unique<Pick>(std::move(columns), std::move(rows));
}

Lack lack_of(Match match, Filter filter, bool antialias) {
  switch (match) {
    case Match::none:
      break;
    case Match::pillow:
      if (!antialias && filter != Filter::nearest)
        return {"match = \"pillow\" has no resize without antialiasing", "set antialias = true"};
      break;
    case Match::torchvision:
      if (filter != Filter::nearest && filter != Filter::linear && !(filter == Filter::cubic && antialias))
        return {"match = \"torchvision\" has nearest, linear, and cubic with antialiasing",
                "choose one of them, or match = \"pillow\""};
      break;
    case Match::opencv:
      if (filter == Filter::hamming || filter == Filter::lanczos)
        return {"match = \"opencv\" has nearest, linear, cubic and box", "choose one of them"};
      if (antialias && filter != Filter::box && filter != Filter::nearest)
        return {"match = \"opencv\" antialiases with filter = \"box\" (INTER_AREA) only",
                "set antialias = false or filter = \"box\""};
      break;
  }
  return {};
}

std::unique_ptr<ExactResize> exact_resize(Match match, const Axis& x, const Axis& y, Filter filter,
                                          bool antialias, int channels) {
  if (Lack lack = lack_of(match, filter, antialias); !lack.what.empty())
    fail(ErrorCode::usage, lack.what, "resize", lack.fix);
  switch (match) {
    case Match::pillow:
      return pillow_resize(x, y, filter, channels);
    case Match::torchvision:
      return torchvision_resize(x, y, filter, antialias, channels);
    case Match::opencv:
      return opencv_resize(x, y, filter, channels);
    case Match::none:
      break;
  }
  PELTON_CHECK(false, "no library to match");
}

}  // namespace pelton::ir
