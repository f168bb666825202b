// SPDX-License-Identifier: Apache-2.0
#include "data/codec/codec.h"

#include <array>
#include <cstring>

#include "data/codec/codec_impl.h"
#include "data/codec/jpeg.h"

namespace pelton::data {
namespace {

bool starts(Bytes b, std::string_view prefix, size_t at = 0) {
  return b.size() >= at + prefix.size() && std::memcmp(b.data() + at, prefix.data(), prefix.size()) == 0;
}

ImageFormat sniff(Bytes b, const std::string& where) {
  using namespace std::string_view_literals;
  if (b.empty()) fail(ErrorCode::bad_format, "the file is empty", where);
  if (starts(b, "\xff\xd8"sv)) return ImageFormat::jpeg;
  if (starts(b, "\x89PNG\r\n\x1a\n"sv)) return ImageFormat::png;
  if (starts(b, "RIFF"sv) && starts(b, "WEBP"sv, 8)) return ImageFormat::webp;
  if (starts(b, "BM"sv)) return ImageFormat::bmp;
  if (starts(b, "II*\0"sv) || starts(b, "MM\0*"sv) || starts(b, "II+\0"sv) || starts(b, "MM\0+"sv))
    return ImageFormat::tiff;
  if (b.size() > 2 && b[0] == 'P' && b[1] >= '1' && b[1] <= '7') return ImageFormat::pnm;
  std::string found = "unknown bytes";
  if (starts(b, "GIF8"sv))
    found = "GIF";
  else if (starts(b, "ftyp"sv, 4))
    found = "HEIF, AVIF or MP4";
  else if (starts(b, "\0\0\0\x0cjP"sv) || starts(b, "\xff\x4f\xff\x51"sv))
    found = "JPEG 2000";
  else if (starts(b, "version https://git-lfs"sv))
    found = "a Git LFS pointer (run git lfs pull)";
  else if (starts(b, "<"sv))
    found = "markup text";
  fail(ErrorCode::bad_format, cat("not an image that Pelton reads: ", found), where,
       "JPEG, PNG, WebP, BMP, TIFF and PNM are read");
}

template <class T>
Tensor convert(const Tensor& in, int64_t channels) {
  const int64_t h = in.dims()[0], w = in.dims()[1], c = in.dims()[2];
  Tensor out(in.dtype(), {h, w, channels});
  const T* src = in.as<T>();
  T* dst = out.as_mutable<T>();
  const bool gray_in = c < 3;
  for (int64_t i = 0; i < h * w; ++i, src += c, dst += channels) {
    if (channels == 3) {
      dst[0] = src[0];
      dst[1] = src[gray_in ? 0 : 1];
      dst[2] = src[gray_in ? 0 : 2];
    } else if (gray_in) {
      dst[0] = src[0];
    } else {
      dst[0] = static_cast<T>((src[0] * 19595u + src[1] * 38470u + src[2] * 7471u + 0x8000u) >> 16);
    }
  }
  return out;
}

}  // namespace

std::string_view name(ImageFormat f) {
  static constexpr std::array<std::string_view, 6> names = {"JPEG", "PNG", "WebP", "BMP", "TIFF", "PNM"};
  return names[static_cast<size_t>(f)];
}

void check_size(int64_t width, int64_t height, int64_t max_pixels, const std::string& where) {
  if (width <= 0 || height <= 0)
    fail(ErrorCode::bad_format, cat("the header says ", width, "x", height, " pixels"), where);
  if (width > (1 << 20) || height > (1 << 20) || width > max_pixels / height)
    fail(ErrorCode::limit,
         cat("the header says ", width, "x", height, " pixels, above the limit of ", max_pixels), where,
         "raise max_pixels if the file is to be trusted");
}

ImageInfo read_info(Bytes bytes, const std::string& where) {
  switch (sniff(bytes, where)) {
    case ImageFormat::jpeg:
      return jpeg_info(bytes, where).image;
    case ImageFormat::png:
      return png_info(bytes, where);
    case ImageFormat::webp:
      return webp_info(bytes, where);
    case ImageFormat::bmp:
      return bmp_info(bytes, where);
    case ImageFormat::tiff:
      return tiff_info(bytes, where);
    case ImageFormat::pnm:
      return pnm_info(bytes, where);
  }
  PELTON_CHECK(false);
}

Tensor decode_image(Bytes bytes, const DecodeOptions& options, const std::string& where) {
  ImageInfo info = read_info(bytes, where);
  check_size(info.width, info.height, options.max_pixels, where);
  Tensor image;
  switch (info.format) {
    case ImageFormat::jpeg:
      image = jpeg_decode(bytes, options, where);
      break;
    case ImageFormat::png:
      image = png_decode(bytes, options, where);
      break;
    case ImageFormat::webp:
      image = webp_decode(bytes, options, where);
      break;
    case ImageFormat::bmp:
      image = bmp_decode(bytes, options, where);
      break;
    case ImageFormat::tiff:
      image = tiff_decode(bytes, options, where);
      break;
    case ImageFormat::pnm:
      image = pnm_decode(bytes, options, where);
      break;
  }
  image = to_colour(std::move(image), options.colour);
  return options.orient ? oriented(image, info.orientation) : image;
}

Tensor to_colour(Tensor image, Colour colour) {
  if (colour == Colour::unchanged) return image;
  const int64_t c = image.dims()[2], wanted = colour == Colour::rgb ? 3 : 1;
  if (image.dtype() == DType::u16) {
    Tensor narrow(DType::u8, image.dims());
    const uint16_t* src = image.as<uint16_t>();
    uint8_t* dst = narrow.as_mutable<uint8_t>();
    for (int64_t i = 0; i < image.count(); ++i) dst[i] = static_cast<uint8_t>(src[i] >> 8);
    image = std::move(narrow);
  }
  return c == wanted ? image : convert<uint8_t>(image, wanted);
}

Tensor oriented(const Tensor& image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const int64_t h = image.dims()[0], w = image.dims()[1];
  const int64_t pixel = image.dims()[2] * bits(image.dtype()) / 8;
  const bool swap = orientation >= 5;
  // Where output pixel (x, y) comes from: a start and a step for each output axis.
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Tensor out(image.dtype(), {swap ? w : h, swap ? h : w, image.dims()[2]});
  auto src = static_cast<const uint8_t*>(image.data());
  auto dst = static_cast<uint8_t*>(out.mutable_data());
  const int64_t out_h = swap ? w : h, out_w = swap ? h : w;
  for (int64_t y = 0; y < out_h; ++y)
    for (int64_t x = 0; x < out_w; ++x, dst += pixel) {
      int64_t sx = swap ? y : x, sy = swap ? x : y;
      if (from_right) sx = w - 1 - sx;
      if (from_bottom) sy = h - 1 - sy;
      std::memcpy(dst, src + (sy * w + sx) * pixel, static_cast<size_t>(pixel));
    }
  return out;
}

}  // namespace pelton::data
