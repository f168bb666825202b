// SPDX-License-Identifier: Apache-2.0
// Still images: header inspection and decoding from memory. Pixels come out as u8 or u16 [height, width,
// channels]. Bytes are untrusted: sizes are checked against a pixel limit before anything is allocated, and
// whatever cannot be decoded is a bad_format or limit error that says why.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tensor/tensor.h"

namespace pelton::data {

using Bytes = std::span<const uint8_t>;

enum class ImageFormat : uint8_t { jpeg, png, webp, bmp, tiff, pnm };
std::string_view name(ImageFormat f);

struct ImageInfo {
  ImageFormat format = ImageFormat::jpeg;
  int width = 0, height = 0;  // as stored, before the orientation is applied
  int channels = 0;           // of the stored pixels; 1 for a palette
  int bits = 8;               // a channel
  int orientation = 1;        // EXIF 1..8
  bool palette = false;
};

enum class Colour : uint8_t { rgb, gray, unchanged };  // unchanged: keeps channels (1..4) and 16-bit depth

struct DecodeOptions {
  Colour colour = Colour::rgb;
  bool orient = true;           // apply the EXIF orientation
  bool fill_truncated = false;  // grey or black where a cut file has no data, instead of an error
  int64_t max_pixels = 178'956'970;
  bool gpu = false;  // leave JPEG to the device of the pipeline where that can (LazyImage::device_job)
};

// Half-open pixel rectangle.
struct Rect {
  int x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  int width() const { return x1 - x0; }
  int height() const { return y1 - y0; }
  bool operator==(const Rect&) const = default;
};

// What the first bytes say; the file name plays no part. `where` names the sample in errors.
ImageInfo read_info(Bytes bytes, const std::string& where);
Tensor decode_image(Bytes bytes, const DecodeOptions& options, const std::string& where);

// Applies an EXIF orientation (1..8) to [h, w, c] pixels.
Tensor oriented(const Tensor& image, int orientation);

// Throws limit when width * height exceeds the limit or a side exceeds 2^20, bad_format when one is zero.
void check_size(int64_t width, int64_t height, int64_t max_pixels, const std::string& where);

// [h, w, c] of u8 or u16 to the wanted colour form. Four channels are RGBA: alpha is dropped, as is that of
// two-channel grey. Grey weighs 0.299, 0.587, 0.114 in 16-bit fixed point; 16-bit goes to 8 by its high byte.
Tensor to_colour(Tensor image, Colour colour);

}  // namespace pelton::data
