// SPDX-License-Identifier: Apache-2.0
// Windows bitmaps: 1, 4, 8, 16, 24 and 32 bits, bit fields, 4- and 8-bit run-length coding, both row orders.
#include <array>
#include <bit>

#include "data/codec/codec_impl.h"

namespace pelton::data {
namespace {

struct Header {
  int64_t width = 0, height = 0;
  bool top_down = false;
  int bits = 0;
  uint32_t compression = 0;  // 0 none, 1 RLE8, 2 RLE4, 3 bit fields, 6 bit fields with alpha
  size_t body = 0, palette = 0, palette_entry = 4;
  uint32_t colours = 0;
  std::array<uint32_t, 4> mask{};  // red, green, blue, alpha
};

uint32_t le(Bytes b, size_t at, int bytes) {
  uint32_t v = 0;
  for (int i = 0; i < bytes; ++i) v |= static_cast<uint32_t>(b[at + static_cast<size_t>(i)]) << (8 * i);
  return v;
}

Header parse(Bytes b, const std::string& where) {
  if (b.size() < 26) fail(ErrorCode::bad_format, "the BMP header is cut short", where);
  Header h;
  h.body = le(b, 10, 4);
  const uint32_t size = le(b, 14, 4);
  if (size == 12) {
    h.width = le(b, 18, 2);
    h.height = le(b, 20, 2);
    h.bits = static_cast<int>(le(b, 24, 2));
    h.palette_entry = 3;
  } else {
    if (size < 40 || size > 1024 || b.size() < 14 + size_t{size})
      fail(ErrorCode::bad_format, cat("damaged BMP header of ", size, " bytes"), where);
    h.width = static_cast<int32_t>(le(b, 18, 4));
    h.height = static_cast<int32_t>(le(b, 22, 4));
    h.bits = static_cast<int>(le(b, 28, 2));
    h.compression = le(b, 30, 4);
    h.colours = le(b, 46, 4);
  }
  h.top_down = h.height < 0;
  if (h.top_down) h.height = -h.height;
  h.palette = 14 + size_t{size};
  if (h.compression == 3 || h.compression == 6) {
    const size_t at = 54;  // after the 40-byte header, in every version
    const size_t masks = size >= 56 || h.compression == 6 ? 4 : 3;
    if (b.size() < at + 4 * masks) fail(ErrorCode::bad_format, "BMP bit fields are cut short", where);
    for (size_t i = 0; i < masks; ++i) h.mask[i] = le(b, at + 4 * i, 4);
    if (size == 40) h.palette += 4 * masks;
  } else if (h.bits == 16) {
    h.mask = {0x7c00, 0x03e0, 0x001f, 0};
  } else if (h.bits == 24 || h.bits == 32) {
    h.mask = {0xff0000, 0xff00, 0xff, 0};
  }
  const bool known_bits =
      h.bits == 1 || h.bits == 4 || h.bits == 8 || h.bits == 16 || h.bits == 24 || h.bits == 32;
  const bool fits = h.compression == 0 || (h.compression == 1 && h.bits == 8) ||
                    (h.compression == 2 && h.bits == 4) ||
                    ((h.compression == 3 || h.compression == 6) && (h.bits == 16 || h.bits == 32));
  if (!known_bits || !fits)
    fail(ErrorCode::unsupported_op,
         cat("BMP with ", h.bits, " bits and compression ", h.compression, " is not supported"), where);
  return h;
}

// Fills palette indices of a run-length coded image; false where the data ends early or leaves the image.
bool unpack_runs(Bytes b, const Header& h, std::vector<uint8_t>& index) {
  size_t at = h.body;
  int64_t x = 0, y = 0;
  auto put = [&](int v) {
    if (x >= h.width || y >= h.height) return false;
    index[static_cast<size_t>(y * h.width + x++)] = static_cast<uint8_t>(v);
    return true;
  };
  while (at + 2 <= b.size()) {
    const int count = b[at], value = b[at + 1];
    at += 2;
    if (count > 0) {
      for (int i = 0; i < count; ++i)
        if (!put(h.bits == 8 ? value : i & 1 ? value & 15 : value >> 4)) return false;
    } else if (value == 0) {
      x = 0, ++y;
    } else if (value == 1) {
      return true;
    } else if (value == 2) {
      if (at + 2 > b.size()) return false;
      x += b[at], y += b[at + 1], at += 2;
    } else {
      const size_t bytes = static_cast<size_t>(h.bits == 8 ? value : (value + 1) / 2);
      if (at + bytes > b.size()) return false;
      for (int i = 0; i < value; ++i) {
        const int v = h.bits == 8 ? b[at + static_cast<size_t>(i)]
                                  : b[at + static_cast<size_t>(i / 2)] >> (i & 1 ? 0 : 4) & 15;
        if (!put(v)) return false;
      }
      at += (bytes + 1) & ~size_t{1};
    }
  }
  return false;
}

uint8_t field(uint32_t pixel, uint32_t mask) {
  if (mask == 0) return 255;
  const int shift = std::countr_zero(mask);
  const uint32_t top = mask >> shift;
  return static_cast<uint8_t>((uint64_t{(pixel & mask) >> shift} * 255 + top / 2) / top);
}

}  // namespace

ImageInfo bmp_info(Bytes bytes, const std::string& where) {
  Header h = parse(bytes, where);
  check_size(h.width, h.height, INT64_MAX, where);
  return {ImageFormat::bmp,
          static_cast<int>(h.width),
          static_cast<int>(h.height),
          h.bits <= 8 ? 1
          : h.mask[3] ? 4
                      : 3,
          8,
          1,
          h.bits <= 8};
}

Tensor bmp_decode(Bytes b, const DecodeOptions& options, const std::string& where) {
  Header h = parse(b, where);
  check_size(h.width, h.height, options.max_pixels, where);
  const bool runs = h.compression == 1 || h.compression == 2;
  const size_t stride = static_cast<size_t>((h.width * h.bits + 31) / 32 * 4),
               rows = static_cast<size_t>(h.height);
  if (!runs && (h.body > b.size() || (b.size() - h.body) / stride < rows) && !options.fill_truncated)
    fail(ErrorCode::bad_format,
         cat("the BMP data is cut short: ", rows, " rows of ", stride, " bytes do not fit in ", b.size()),
         where);
  std::vector<uint8_t> index;
  if (runs) {
    index.assign(static_cast<size_t>(h.width * h.height), 0);
    if (!unpack_runs(b, h, index) && !options.fill_truncated)
      fail(ErrorCode::bad_format, "damaged BMP run-length data", where);
  }
  const size_t entries = h.bits > 8 ? 0 : h.colours && h.colours <= 256 ? h.colours : size_t{1} << h.bits;
  if (h.palette + entries * h.palette_entry > b.size())
    fail(ErrorCode::bad_format, "the BMP palette is cut short", where);
  const int64_t channels = h.mask[3] ? 4 : 3;
  Tensor out = Tensor::zeros(DType::u8, {h.height, h.width, channels});
  uint8_t* dst = out.as_mutable<uint8_t>();
  for (size_t y = 0; y < rows; ++y) {
    const size_t row = h.top_down ? y : rows - 1 - y;
    uint8_t* o = dst + row * static_cast<size_t>(h.width * channels);
    if (!runs && h.body + (y + 1) * stride > b.size()) break;
    for (size_t x = 0; x < static_cast<size_t>(h.width); ++x, o += channels) {
      if (h.bits <= 8) {
        const size_t at = h.body + y * stride + x * static_cast<size_t>(h.bits) / 8;
        const size_t v = runs
                             ? index[y * static_cast<size_t>(h.width) + x]
                             : b[at] >> (8 - h.bits - static_cast<int>(x * static_cast<size_t>(h.bits) % 8)) &
                                   ((1 << h.bits) - 1);
        if (v >= entries) fail(ErrorCode::bad_format, cat("BMP palette index ", v, " of ", entries), where);
        const uint8_t* c = b.data() + h.palette + v * h.palette_entry;
        o[0] = c[2], o[1] = c[1], o[2] = c[0];
      } else {
        const uint32_t v = le(b, h.body + y * stride + x * static_cast<size_t>(h.bits / 8), h.bits / 8);
        for (size_t c = 0; c < static_cast<size_t>(channels); ++c) o[c] = field(v, h.mask[c]);
      }
    }
  }
  return out;
}

}  // namespace pelton::data
