// SPDX-License-Identifier: Apache-2.0
// JPEG: whole images, regions, reduced sizes, and component planes as they are coded. The plane form lets a
// resample read luma and half-size chroma directly, so that no full-size colour image is ever made.
#pragma once

#include <array>
#include <vector>

#include "data/codec/codec.h"

namespace pelton::data {

struct JpegInfo {
  ImageInfo image;
  int components = 0;
  std::array<int, 4> h{}, v{};  // sampling factors
  bool progressive = false;
  bool ycc = false;  // three components coded as YCbCr
  size_t scan = 0;   // where the first scan's marker lies; 0: nowhere
};
JpegInfo jpeg_info(Bytes bytes, const std::string& where);

// u8 [h, w, c]; 1 or 3 channels by options.colour (CMYK and YCCK become RGB). The orientation is not applied.
Tensor jpeg_decode(Bytes bytes, const DecodeOptions& options, const std::string& where);

// The same pixels as jpeg_decode inside `region` (full-resolution pixels); returns the rectangle it decoded,
// which contains the region. Rows below the region are never read.
Tensor jpeg_decode_region(Bytes bytes, Rect region, const DecodeOptions& options, const std::string& where,
                          Rect* decoded);

// One component at its own resolution. Plane pixel (i, j) is centred on full-resolution position
// ((i + x0 + 0.5) * step_x, (j + y0 + 0.5) * step_y).
struct JpegPlane {
  uint8_t* data = nullptr;
  int pitch = 0, width = 0, height = 0;
  int x0 = 0, y0 = 0;
  double step_x = 1, step_y = 1;
};
struct JpegPlanes {
  std::vector<JpegPlane> planes;  // 1 or 3
  std::vector<uint8_t> storage;   // reused from call to call
};
// Grey and YCbCr images only. Decodes the rows that `region` needs, reduced by `reduce` (1, 2, 4 or 8).
void jpeg_decode_planes(Bytes bytes, Rect region, int reduce, bool luma_only, const DecodeOptions& options,
                        const std::string& where, JpegPlanes& out);

// Encodes u8 [h, w, 1 or 3] pixels.
std::vector<uint8_t> jpeg_encode(const Tensor& image, int quality);

}  // namespace pelton::data
