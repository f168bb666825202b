// SPDX-License-Identifier: Apache-2.0
// The container of plan files: named, checksummed, aligned sections. docs/formats.md has the layout.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/hash.h"

namespace pelton::runtime {

inline constexpr char kPlanMagic[9] = "\x89PLTN\r\n\x1a";
inline constexpr uint32_t kPlanVersion = 1;
inline constexpr uint32_t kRequired = 1;  // flag: readers that do not know the section refuse the file
inline constexpr uint64_t kSectionAlignment = 64;
inline constexpr uint64_t kPageAlignment = 4096;

// XXH3-128 of the XXH3-128s of the pieces of 1 MiB; works on all threads. `forget`: pages of a
// mapped file leave memory once they are summed.
Checksum piecewise_checksum(std::span<const std::byte> bytes, bool forget = false);

struct Section {
  std::string name;
  uint32_t flags = 0;
  uint64_t offset = 0, size = 0;
  Checksum checksum;
};

// Checks header, table and that the sections fit the file; contents are checked by verify_section. Errors:
// bad_format for what is no plan, truncated or damaged; unsupported_version for a newer version.
std::vector<Section> read_sections(std::span<const std::byte> file);
// bad_format naming the section if its bytes are not those written.
// `keep`: it is read next, so its pages stay in memory.
std::span<const std::byte> verify_section(std::span<const std::byte> file, const Section& section,
                                          bool keep = false);

// One part of a section's content.
using Part = std::span<const std::byte>;
struct SectionContent {
  std::string name;
  uint32_t flags = kRequired;
  uint64_t alignment = kSectionAlignment;
  std::vector<Part> parts;  // each starts at a multiple of 64 within the section
};
void write_sections(const std::string& path, const std::vector<SectionContent>& sections);

}  // namespace pelton::runtime
