// SPDX-License-Identifier: Apache-2.0
// Reading zip archives as .npz uses them: members stored or deflated, ZIP64 included, checked by CRC.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pelton {

struct ZipMember {
  std::string_view name;
  std::string_view packed;  // bytes in the archive
  uint64_t size_bytes = 0;  // when unpacked
  uint32_t crc = 0;
  bool deflated = false;
};

// The central directory. Encrypted members, other methods and damaged archives are bad_format.
std::vector<ZipMember> list_zip(std::string_view archive);
// Stored members need no copy: their bytes are member.packed. `limit_bytes` bounds what a member may claim.
std::string inflate_member(const ZipMember& member, uint64_t limit_bytes);
void check_crc(const ZipMember& member, std::string_view bytes);

}  // namespace pelton
