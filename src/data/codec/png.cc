// SPDX-License-Identifier: Apache-2.0
#include "data/codec/codec_impl.h"

#if PELTON_HAVE_PNG
#include <csetjmp>
#include <cstring>

#include <png.h>

namespace pelton::data {
namespace {

struct Cursor {
  Bytes bytes;
  size_t at = 0;
  bool exhausted = false;
  char message[160] = {};
};

void read_bytes(png_structp png, png_bytep out, size_t n) {
  auto* c = static_cast<Cursor*>(png_get_io_ptr(png));
  if (n > c->bytes.size() - c->at) {
    c->exhausted = true;
    png_error(png, "the data is cut short");
  }
  std::memcpy(out, c->bytes.data() + c->at, n);
  c->at += n;
}

void on_error(png_structp png, png_const_charp text) {
  auto* c = static_cast<Cursor*>(png_get_error_ptr(png));
  std::strncpy(c->message, text, sizeof c->message - 1);
  png_longjmp(png, 1);
}

struct Png {
  explicit Png(Bytes bytes) {
    cursor.bytes = bytes;
    png =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, &cursor, on_error, [](png_structp, png_const_charp) {});
    info = png_create_info_struct(png);
    png_set_read_fn(png, &cursor, read_bytes);
    png_set_user_limits(png, 1 << 20, 1 << 20);
    png_set_chunk_cache_max(png, 64);
    png_set_chunk_malloc_max(png, 8 << 20);
  }
  ~Png() { png_destroy_read_struct(&png, &info, nullptr); }
  Png(const Png&) = delete;
  Cursor cursor;
  png_structp png = nullptr;
  png_infop info = nullptr;
};

bool header(Png& p, ImageInfo& out) {
  if (setjmp(png_jmpbuf(p.png))) return false;
  png_read_info(p.png, p.info);
  out.format = ImageFormat::png;
  out.width = static_cast<int>(png_get_image_width(p.png, p.info));
  out.height = static_cast<int>(png_get_image_height(p.png, p.info));
  out.bits = png_get_bit_depth(p.png, p.info);
  out.channels = png_get_channels(p.png, p.info);
  out.palette = png_get_color_type(p.png, p.info) == PNG_COLOR_TYPE_PALETTE;
#ifdef PNG_eXIf_SUPPORTED
  png_uint_32 size = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(p.png, p.info, &size, &exif) && exif) out.orientation = exif_orientation({exif, size});
#endif
  return true;
}

// Chooses the output form: 1-4 channels of 8 or 16 bits in host order.
bool prepare(Png& p, bool keep_depth, int* passes, int* channels, int* depth) {
  if (setjmp(png_jmpbuf(p.png))) return false;
  png_set_expand(p.png);  // palette to RGB, low-bit grey to 8, tRNS to alpha
  if (png_get_bit_depth(p.png, p.info) == 16) {
    if (keep_depth)
      png_set_swap(p.png);
    else
      png_set_strip_16(p.png);
  }
  *passes = png_set_interlace_handling(p.png);
  png_read_update_info(p.png, p.info);
  *channels = png_get_channels(p.png, p.info);
  *depth = png_get_bit_depth(p.png, p.info);
  return true;
}

bool rows(Png& p, int passes, uint8_t* out, size_t pitch, png_uint_32 height) {
  if (setjmp(png_jmpbuf(p.png))) return false;
  for (int pass = 0; pass < passes; ++pass)
    for (png_uint_32 y = 0; y < height; ++y) png_read_row(p.png, out + y * pitch, nullptr);
  return true;
}

[[noreturn]] void raise(const Png& p, const std::string& where) {
  fail(ErrorCode::bad_format, cat("damaged PNG: ", p.cursor.message), where,
       p.cursor.exhausted ? "restore the file, or set truncated = \"fill\"" : "");
}

}  // namespace

ImageInfo png_info(Bytes bytes, const std::string& where) {
  Png p(bytes);
  ImageInfo info;
  if (!header(p, info)) raise(p, where);
  return info;
}

Tensor png_decode(Bytes bytes, const DecodeOptions& options, const std::string& where) {
  Png p(bytes);
  ImageInfo info;
  if (!header(p, info)) raise(p, where);
  check_size(info.width, info.height, options.max_pixels, where);
  int passes = 1, channels = 0, depth = 8;
  if (!prepare(p, options.colour == Colour::unchanged, &passes, &channels, &depth)) raise(p, where);
  Tensor out = Tensor::zeros(depth == 16 ? DType::u16 : DType::u8, {info.height, info.width, channels});
  const size_t pitch = static_cast<size_t>(info.width) * static_cast<size_t>(channels * depth / 8);
  bool complete = rows(p, passes, static_cast<uint8_t*>(out.mutable_data()), pitch,
                       static_cast<png_uint_32>(info.height));
  if (!complete && !(options.fill_truncated && p.cursor.exhausted)) raise(p, where);
  return out;
}

}  // namespace pelton::data
#else
namespace pelton::data {
ImageInfo png_info(Bytes, const std::string& where) {
  refuse_format("PNG", where);
}
Tensor png_decode(Bytes, const DecodeOptions&, const std::string& where) {
  refuse_format("PNG", where);
}
}  // namespace pelton::data
#endif
