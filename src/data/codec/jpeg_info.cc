// SPDX-License-Identifier: Apache-2.0
// JPEG headers: a walk over the marker segments up to the first scan.
#include "data/codec/codec_impl.h"
#include "data/codec/jpeg.h"

namespace pelton::data {
namespace {

int be16(Bytes b, size_t at) {
  return b[at] << 8 | b[at + 1];
}

std::string_view coding_name(int marker) {
  switch (marker) {
    case 0xc3:
      return "lossless Huffman";
    case 0xc5:
    case 0xc6:
    case 0xc7:
      return "hierarchical";
    case 0xcb:
      return "lossless arithmetic";
    case 0xcd:
    case 0xce:
    case 0xcf:
      return "hierarchical arithmetic";
    case 0xf7:
      return "JPEG-LS";
    default:
      return "";
  }
}

void read_frame(Bytes s, int marker, JpegInfo& info, const std::string& where) {
  if (auto coding = coding_name(marker); !coding.empty())
    fail(ErrorCode::unsupported_op, cat(coding, " JPEG coding is not supported"), where,
         "re-encode the file as baseline JPEG");
  if (s.size() < 6) fail(ErrorCode::bad_format, "JPEG frame header is cut short", where);
  info.image.bits = s[0];
  info.image.height = be16(s, 1);
  info.image.width = be16(s, 3);
  info.components = s[5];
  info.progressive = marker == 0xc2 || marker == 0xca;
  if (info.image.bits != 8)
    fail(ErrorCode::unsupported_op, cat(info.image.bits, "-bit JPEG is not supported"), where,
         "re-encode the file with 8 bits");
  if (info.components < 1 || info.components > 4 || s.size() < 6 + 3 * static_cast<size_t>(info.components))
    fail(ErrorCode::bad_format, cat("JPEG frame header with ", info.components, " components is damaged"),
         where);
  for (size_t i = 0; i < static_cast<size_t>(info.components); ++i) {
    info.h[i] = s[7 + 3 * i] >> 4;
    info.v[i] = s[7 + 3 * i] & 15;
    if (info.h[i] < 1 || info.h[i] > 4 || info.v[i] < 1 || info.v[i] > 4)
      fail(ErrorCode::bad_format,
           cat("JPEG sampling factors ", info.h[i], "x", info.v[i], " are outside 1..4"), where);
  }
  if (info.image.width == 0 || info.image.height == 0)
    fail(ErrorCode::bad_format,
         cat("the JPEG header says ", info.image.width, "x", info.image.height, " pixels"), where);
}

}  // namespace

JpegInfo jpeg_info(Bytes b, const std::string& where) {
  JpegInfo info;
  info.image.format = ImageFormat::jpeg;
  int adobe_transform = -1;
  bool jfif = false, rgb_ids = false;
  size_t at = 2;
  while (at + 4 <= b.size()) {
    if (b[at] != 0xff) {
      ++at;
      continue;
    }  // fill or extraneous bytes between segments
    int marker = b[at + 1];
    if (marker == 0xff) {
      ++at;
      continue;
    }
    if (marker == 0 || marker == 1 || (marker >= 0xd0 && marker <= 0xd8)) {
      at += 2;
      continue;
    }
    if (marker == 0xda) info.scan = at;
    if (marker == 0xd9 || marker == 0xda) break;
    size_t length = static_cast<size_t>(be16(b, at + 2));
    if (length < 2 || at + 2 + length > b.size()) break;
    Bytes body = b.subspan(at + 4, length - 2);
    bool frame = (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc) ||
                 marker == 0xf7;
    if (frame) {
      read_frame(body, marker, info, where);
      rgb_ids = info.components == 3 && body[6] == 'R' && body[9] == 'G' && body[12] == 'B';
    } else if (marker == 0xe0 && body.size() >= 5 && body[0] == 'J' && body[1] == 'F') {
      jfif = true;
    } else if (marker == 0xe1 && body.size() > 6 && body[0] == 'E' && body[1] == 'x' && body[2] == 'i' &&
               body[3] == 'f') {
      info.image.orientation = exif_orientation(body.subspan(6));
    } else if (marker == 0xee && body.size() >= 12 && body[0] == 'A' && body[1] == 'd' && body[4] == 'e') {
      adobe_transform = body[11];
    }
    at += 2 + length;
  }
  if (info.components == 0) fail(ErrorCode::bad_format, "JPEG without a frame header (SOF marker)", where);
  info.image.channels = info.components;
  info.ycc = info.components == 3 && (jfif || (adobe_transform >= 0 ? adobe_transform == 1 : !rgb_ids));
  return info;
}

}  // namespace pelton::data
