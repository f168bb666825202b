// SPDX-License-Identifier: Apache-2.0
// What the writer and the reader of plan files agree on beside the container (sections.h): the entries of the
// two indices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pelton::runtime {

// Of weights.index, by blob: SHA-256 of the content, u64 offset in `weights`, u64 bytes.
inline constexpr uint64_t kIndexEntryBytes = 48;
// The offset of a blob whose bytes the file holds only packed.
inline constexpr uint64_t kOnlyPacked = UINT64_MAX;
// Of packed.index: u64 blob, offset in `packed`, bytes and bytes of the name that follows, padded to
// kNameAlignment.
inline constexpr size_t kPackedEntryBytes = 32;
inline constexpr uint64_t kNameAlignment = 8;

constexpr uint64_t rounded_up(uint64_t bytes, uint64_t to) {
  return (bytes + to - 1) / to * to;
}

}  // namespace pelton::runtime
