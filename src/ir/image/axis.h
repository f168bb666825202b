// SPDX-License-Identifier: Apache-2.0
// How one axis of a picture is cut and resized. Continuous coordinates: pixel i covers [i, i + 1).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace pelton::ir {

enum class Filter : uint8_t { nearest, box, linear, hamming, cubic, lanczos };
// Whose arithmetic a resize follows; none: the default mode's.
enum class Match : uint8_t { none, pillow, torchvision, opencv };

// Output i is resized index r = offset + i (or mirrored: offset + n - 1 - i), centred on source position
// start + (r + 0.5) * scale; only source pixels in [low, high) contribute.
struct Axis {
  double start = 0, scale = 1;
  int offset = 0, n = 0;
  int low = 0, high = 0;
  bool flip = false;
  bool resized = false;  // false: a plain copy of source pixels

  static Axis whole(int size);
  void crop(int at, int count);  // a part of the present output
  void resize(int size);         // the present output at a new size
  void mirror() { flip = !flip; }
  // Source position of the centre of output i, counted from source pixel `base`.
  double position(int i, int base = 0) const {
    return (start - base) + (offset + (flip ? n - 1 - i : i) + 0.5) * scale;
  }
};

inline Axis Axis::whole(int size) {
  Axis a;
  a.n = a.high = size;
  return a;
}

inline void Axis::crop(int at, int count) {
  offset += flip ? n - at - count : at;
  n = count;
}

inline void Axis::resize(int size) {
  start += offset * scale;
  const double end = start + n * scale;
  low = std::max(low, static_cast<int>(std::floor(start)));
  high = std::min(high, static_cast<int>(std::ceil(end)));
  scale = (end - start) / size;
  offset = 0;
  n = size;
  resized = true;
}

}  // namespace pelton::ir
