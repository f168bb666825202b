// SPDX-License-Identifier: Apache-2.0
#include "data/codec/codec_impl.h"

#if PELTON_HAVE_WEBP
#include <cstring>

#include <webp/decode.h>

namespace pelton::data {
namespace {

WebPBitstreamFeatures features(Bytes bytes, const std::string& where) {
  WebPBitstreamFeatures f;
  if (WebPGetFeatures(bytes.data(), bytes.size(), &f) != VP8_STATUS_OK)
    fail(ErrorCode::bad_format, "damaged WebP header", where);
  if (f.has_animation)
    fail(ErrorCode::unsupported_op, "animated WebP is not supported", where, "store single frames");
  return f;
}

// The EXIF chunk of the RIFF container, if there is one.
int orientation(Bytes b) {
  for (size_t at = 12; at + 8 <= b.size();) {
    size_t size = b[at + 4] | b[at + 5] << 8 | b[at + 6] << 16 | static_cast<size_t>(b[at + 7]) << 24;
    if (size > b.size() - at - 8) return 1;
    Bytes body = b.subspan(at + 8, size);
    if (std::memcmp(b.data() + at, "EXIF", 4) == 0) {
      if (size > 6 && std::memcmp(body.data(), "Exif\0\0", 6) == 0) body = body.subspan(6);
      return exif_orientation(body);
    }
    at += 8 + size + (size & 1);
  }
  return 1;
}

}  // namespace

ImageInfo webp_info(Bytes bytes, const std::string& where) {
  WebPBitstreamFeatures f = features(bytes, where);
  return {ImageFormat::webp, f.width, f.height, f.has_alpha ? 4 : 3, 8, orientation(bytes), false};
}

Tensor webp_decode(Bytes bytes, const DecodeOptions& options, const std::string& where) {
  WebPBitstreamFeatures f = features(bytes, where);
  check_size(f.width, f.height, options.max_pixels, where);
  const int channels = f.has_alpha && options.colour == Colour::unchanged ? 4 : 3;
  Tensor out(DType::u8, {f.height, f.width, channels});
  auto* data = out.as_mutable<uint8_t>();
  auto decode = channels == 4 ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (!decode(bytes.data(), bytes.size(), data, static_cast<size_t>(out.bytes()), f.width * channels))
    fail(ErrorCode::bad_format, "damaged or cut WebP data", where);
  return out;
}

}  // namespace pelton::data
#else
namespace pelton::data {
ImageInfo webp_info(Bytes, const std::string& where) {
  refuse_format("WebP", where);
}
Tensor webp_decode(Bytes, const DecodeOptions&, const std::string& where) {
  refuse_format("WebP", where);
}
}  // namespace pelton::data
#endif
