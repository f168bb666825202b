// SPDX-License-Identifier: Apache-2.0
// TIFF, first page. 8-bit RGBA through libtiff's own conversion; 16-bit grey and RGB kept when unchanged
// colour is asked for.
#include "data/codec/codec_impl.h"

#if PELTON_HAVE_TIFF
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <tiffio.h>

namespace pelton::data {
namespace {

struct Source {
  Bytes bytes;
  toff_t at = 0;
};

thread_local std::string last_message;  // libtiff's error handler has no usable per-file argument in 4.4

void on_error(const char* module, const char* format, va_list args) {
  char text[256];
  std::vsnprintf(text, sizeof text, format, args);
  last_message = module ? cat(module, ": ", text) : text;
}

tmsize_t read_bytes(thandle_t handle, void* out, tmsize_t n) {
  auto* s = static_cast<Source*>(handle);
  if (s->at >= s->bytes.size()) return 0;
  size_t count = std::min(static_cast<size_t>(n), s->bytes.size() - static_cast<size_t>(s->at));
  std::memcpy(out, s->bytes.data() + s->at, count);
  s->at += count;
  return static_cast<tmsize_t>(count);
}

toff_t seek(thandle_t handle, toff_t to, int whence) {
  auto* s = static_cast<Source*>(handle);
  s->at = whence == SEEK_SET ? to : whence == SEEK_CUR ? s->at + to : s->bytes.size() + to;
  return s->at;
}

class File {
 public:
  File(Bytes bytes, const std::string& where) : source_{bytes} {
    static const bool once = [] {
      TIFFSetErrorHandler(on_error);
      TIFFSetWarningHandler(nullptr);
      return true;
    }();
    (void)once;
    last_message.clear();
    handle = TIFFClientOpen(
        "image", "rm", &source_, read_bytes, [](thandle_t, void*, tmsize_t) -> tmsize_t { return 0; }, seek,
        [](thandle_t) { return 0; },
        [](thandle_t h) -> toff_t { return static_cast<Source*>(h)->bytes.size(); }, nullptr, nullptr);
    if (!handle) raise(where);
  }
  ~File() {
    if (handle) TIFFClose(handle);
  }
  File(const File&) = delete;
  [[noreturn]] void raise(const std::string& where) const {
    fail(ErrorCode::bad_format,
         cat("damaged or unsupported TIFF: ", last_message.empty() ? "unreadable" : last_message), where);
  }
  template <class T>
  T field(uint32_t tag, T fallback) const {
    T v = fallback;
    return TIFFGetFieldDefaulted(handle, tag, &v) ? v : fallback;
  }
  TIFF* handle = nullptr;

 private:
  Source source_;
};

ImageInfo info_of(const File& f) {
  ImageInfo info;
  info.format = ImageFormat::tiff;
  info.width = static_cast<int>(std::min<uint32_t>(f.field<uint32_t>(TIFFTAG_IMAGEWIDTH, 0), 1u << 30));
  info.height = static_cast<int>(std::min<uint32_t>(f.field<uint32_t>(TIFFTAG_IMAGELENGTH, 0), 1u << 30));
  info.channels = f.field<uint16_t>(TIFFTAG_SAMPLESPERPIXEL, 1);
  info.bits = f.field<uint16_t>(TIFFTAG_BITSPERSAMPLE, 1);
  info.palette = f.field<uint16_t>(TIFFTAG_PHOTOMETRIC, 0) == PHOTOMETRIC_PALETTE;
  int orientation = f.field<uint16_t>(TIFFTAG_ORIENTATION, 1);
  info.orientation = orientation >= 1 && orientation <= 8 ? orientation : 1;
  return info;
}

}  // namespace

ImageInfo tiff_info(Bytes bytes, const std::string& where) {
  File f(bytes, where);
  ImageInfo info = info_of(f);
  check_size(info.width, info.height, INT64_MAX, where);
  return info;
}

Tensor tiff_decode(Bytes bytes, const DecodeOptions& options, const std::string& where) {
  File f(bytes, where);
  ImageInfo info = info_of(f);
  check_size(info.width, info.height, options.max_pixels, where);
  const int64_t w = info.width, h = info.height;
  // libtiff's RGBA conversion takes no more than 8 bits of grey or RGB at 16; scan lines keep the depth.
  const int photometric = f.field<uint16_t>(TIFFTAG_PHOTOMETRIC, 0);
  const bool plain = photometric == PHOTOMETRIC_MINISBLACK || photometric == PHOTOMETRIC_RGB;
  if (info.bits == 16 && plain && !TIFFIsTiled(f.handle) && info.channels <= 4 &&
      f.field<uint16_t>(TIFFTAG_PLANARCONFIG, 1) == PLANARCONFIG_CONTIG &&
      f.field<uint16_t>(TIFFTAG_SAMPLEFORMAT, 1) == 1) {
    Tensor out = Tensor::zeros(DType::u16, {h, w, info.channels});
    if (TIFFScanlineSize(f.handle) != w * info.channels * 2) f.raise(where);
    auto* row = out.as_mutable<uint16_t>();
    for (int64_t y = 0; y < h; ++y, row += w * info.channels)
      if (TIFFReadScanline(f.handle, row, static_cast<uint32_t>(y), 0) < 0) {
        if (options.fill_truncated) break;
        f.raise(where);
      }
    return out;
  }
  std::vector<uint32_t> raster(static_cast<size_t>(w * h));
  // The orientation argument ORIENTATION_TOPLEFT of libtiff would itself flip; the stored order is asked for.
  if (!TIFFReadRGBAImageOriented(f.handle, static_cast<uint32_t>(w), static_cast<uint32_t>(h), raster.data(),
                                 info.orientation, options.fill_truncated ? 0 : 1))
    f.raise(where);
  const int64_t channels = info.channels == 2 || info.channels == 4 ? 4 : 3;
  Tensor out(DType::u8, {h, w, channels});
  uint8_t* d = out.as_mutable<uint8_t>();
  for (uint32_t v : raster) {
    *d++ = static_cast<uint8_t>(TIFFGetR(v));
    *d++ = static_cast<uint8_t>(TIFFGetG(v));
    *d++ = static_cast<uint8_t>(TIFFGetB(v));
    if (channels == 4) *d++ = static_cast<uint8_t>(TIFFGetA(v));
  }
  return out;
}

}  // namespace pelton::data
#else
namespace pelton::data {
ImageInfo tiff_info(Bytes, const std::string& where) {
  refuse_format("TIFF", where);
}
Tensor tiff_decode(Bytes, const DecodeOptions&, const std::string& where) {
  refuse_format("TIFF", where);
}
}  // namespace pelton::data
#endif
