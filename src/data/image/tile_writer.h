// SPDX-License-Identifier: Apache-2.0
// Turns tiles of float samples [channel][x][16 rows] into output pixels: colour matrix, clamp, mean and
// scale, element type, layout and transposition, fused.
#pragma once

#include "data/image/lazy_image.h"
#include "ir/image/resample.h"

namespace pelton::data {

class TileWriter {
 public:
  // `across` x `down`: size of the sampled picture before `swap`; it lands at (left, top) of the output.
  // to_rgb: the tiles are YCbCr planes.
  TileWriter(const PixelFormat& format, const Geometry& g, int channels, void* out);
  void set_matrix(const ColourMatrix* m, bool to_rgb, bool round);
  void fill(std::array<uint8_t, 3> fill);    // the whole output
  void write(float* tile, int y, int rows);  // changes the tile

 private:
  template <class T>
  void store(const float* tile, int y, int rows);
  PixelFormat format_;
  int channels_, n_, left_, top_, width_, height_;
  bool swap_, mix_ = false, round_ = false;
  ColourMatrix matrix_{};
  void* out_;
};

}  // namespace pelton::data
