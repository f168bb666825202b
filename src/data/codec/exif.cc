// SPDX-License-Identifier: Apache-2.0
#include "data/codec/codec_impl.h"

namespace pelton::data {

int exif_orientation(Bytes b) {
  if (b.size() < 8) return 1;
  const bool little = b[0] == 'I';
  if (!little && b[0] != 'M') return 1;
  auto u16 = [&](size_t at) { return little ? b[at] | b[at + 1] << 8 : b[at] << 8 | b[at + 1]; };
  auto u32 = [&](size_t at) {
    return little ? static_cast<uint32_t>(u16(at)) | static_cast<uint32_t>(u16(at + 2)) << 16
                  : static_cast<uint32_t>(u16(at)) << 16 | static_cast<uint32_t>(u16(at + 2));
  };
  size_t directory = u32(4);
  if (directory + 2 > b.size()) return 1;
  size_t entries = static_cast<size_t>(u16(directory));
  for (size_t i = 0; i < entries; ++i) {
    size_t at = directory + 2 + 12 * i;
    if (at + 12 > b.size()) return 1;
    if (u16(at) == 0x0112) {
      int value = u16(at + 2) == 3 ? u16(at + 8) : 1;  // type SHORT only
      return value >= 1 && value <= 8 ? value : 1;
    }
  }
  return 1;
}

}  // namespace pelton::data
