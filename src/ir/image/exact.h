// SPDX-License-Identifier: Apache-2.0
// Resizes with the arithmetic of other libraries, for pictures that must look as they did when a model was
// trained. Each file states whose arithmetic it follows and how exact it is.
#pragma once

#include <memory>
#include <string>

#include "ir/image/filter_table.h"
#include "ir/image/resample.h"

namespace pelton::ir {

// One resize prepared for its sizes; any thread may run it.
class ExactResize {
 public:
  virtual ~ExactResize() = default;
  virtual int64_t scratch_bytes() const { return 0; }
  // u8 [y.n, x.n, channels] from a view that holds what the axes read. `scratch` is aligned to 8.
  virtual void run(const PlaneView& view, uint8_t* out, void* scratch) const = 0;
};

// What a library lacks: empty if it has such a resize at all.
struct Lack {
  std::string what, fix;
};
Lack lack_of(Match match, Filter filter, bool antialias);

// Neither axis is mirrored. A usage error says what the library lacks.
std::unique_ptr<ExactResize> exact_resize(Match match, const Axis& x, const Axis& y, Filter filter,
                                          bool antialias, int channels);

std::unique_ptr<ExactResize> pillow_resize(const Axis& x, const Axis& y, Filter filter, int channels);
std::unique_ptr<ExactResize> torchvision_resize(const Axis& x, const Axis& y, Filter filter, bool antialias,
                                                int channels);
std::unique_ptr<ExactResize> opencv_resize(const Axis& x, const Axis& y, Filter filter, int channels);

// Copies the pixels at these places of the source.
std::unique_ptr<ExactResize> pick_resize(std::vector<int> columns, std::vector<int> rows);

}  // namespace pelton::ir
