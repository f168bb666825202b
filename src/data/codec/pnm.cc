// SPDX-License-Identifier: Apache-2.0
// Portable bitmaps, graymaps and pixmaps: P1-P6. P7 (PAM) is refused by name.
#include "data/codec/codec_impl.h"

namespace pelton::data {
namespace {

struct Header {
  int kind = 0;
  int64_t width = 0, height = 0, max = 1;
  size_t body = 0;
  int channels() const { return kind == 3 || kind == 6 ? 3 : 1; }
};

// The next unsigned decimal after white space and # comments; -1 at the end or on anything else.
int64_t number(Bytes b, size_t& at) {
  while (at < b.size() && (b[at] <= ' ' || b[at] == '#'))
    if (b[at++] == '#')
      while (at < b.size() && b[at] != '\n') ++at;
  int64_t v = -1;
  for (; at < b.size() && b[at] >= '0' && b[at] <= '9'; ++at) {
    v = (v < 0 ? 0 : v) * 10 + (b[at] - '0');
    if (v > (int64_t{1} << 31)) return -1;
  }
  return v;
}

Header parse(Bytes b, const std::string& where) {
  Header h;
  h.kind = b[1] - '0';
  if (h.kind == 7)
    fail(ErrorCode::unsupported_op, "PAM (P7) images are not supported", where, "convert to PNM or PNG");
  size_t at = 2;
  h.width = number(b, at);
  h.height = number(b, at);
  if (h.kind != 1 && h.kind != 4) h.max = number(b, at);
  if (h.width <= 0 || h.height <= 0 || h.max < 1 || h.max > 65535)
    fail(ErrorCode::bad_format, cat("damaged PNM header: ", h.width, "x", h.height, ", maximum ", h.max),
         where);
  h.body = at + 1;  // exactly one white-space byte
  return h;
}

uint16_t scaled(int64_t v, const Header& h) {
  const int64_t top = h.max > 255 ? 65535 : 255;
  return static_cast<uint16_t>(h.max == top ? v : (v * top * 2 + h.max) / (2 * h.max));
}

}  // namespace

ImageInfo pnm_info(Bytes bytes, const std::string& where) {
  Header h = parse(bytes, where);
  check_size(h.width, h.height, INT64_MAX, where);
  return {ImageFormat::pnm,
          static_cast<int>(h.width),
          static_cast<int>(h.height),
          h.channels(),
          h.max > 255 ? 16 : 8,
          1,
          false};
}

Tensor pnm_decode(Bytes b, const DecodeOptions& options, const std::string& where) {
  Header h = parse(b, where);
  check_size(h.width, h.height, options.max_pixels, where);
  const int64_t row = h.width * h.channels(), total = row * h.height;
  const int64_t need = h.kind == 4   ? (h.width + 7) / 8 * h.height
                       : h.kind >= 5 ? total * (h.max > 255 ? 2 : 1)
                                     : total;
  const int64_t have = static_cast<int64_t>(b.size()) - static_cast<int64_t>(std::min(h.body, b.size()));
  if (have < need && !options.fill_truncated)
    fail(ErrorCode::bad_format, cat("the PNM data is cut short: ", have, " bytes of ", need), where);
  Tensor out = Tensor::zeros(h.max > 255 ? DType::u16 : DType::u8, {h.height, h.width, h.channels()});
  auto* wide = h.max > 255 ? out.as_mutable<uint16_t>() : nullptr;
  auto* narrow = wide ? nullptr : out.as_mutable<uint8_t>();
  size_t at = std::min(h.body, b.size());
  for (int64_t i = 0; i < total; ++i) {
    int64_t v = 0;
    if (h.kind == 4) {
      size_t byte = at + static_cast<size_t>(i / row * ((row + 7) / 8) + i % row / 8);
      if (byte >= b.size()) break;
      v = b[byte] >> (7 - i % row % 8) & 1 ? 0 : 255;
    } else if (h.kind >= 5) {
      const size_t size = wide ? 2 : 1;
      if (at + size > b.size()) break;
      v = wide ? b[at] << 8 | b[at + 1] : b[at];
      at += size;
      v = scaled(std::min(v, h.max), h);
    } else if (h.kind == 1) {
      while (at < b.size() && b[at] != '0' && b[at] != '1') ++at;  // digits may touch
      if (at >= b.size()) {
        if (options.fill_truncated) break;
        fail(ErrorCode::bad_format, cat("the PNM text ends after ", i, " of ", total, " values"), where);
      }
      v = b[at++] == '1' ? 0 : 255;
    } else {
      v = number(b, at);
      if (v < 0 && options.fill_truncated) break;
      if (v < 0 || v > h.max)
        fail(ErrorCode::bad_format, cat("PNM value ", i, " of ", total, " is missing or above ", h.max),
             where);
      v = scaled(v, h);
    }
    if (wide)
      wide[i] = static_cast<uint16_t>(v);
    else
      narrow[i] = static_cast<uint8_t>(v);
  }
  return out;
}

}  // namespace pelton::data
