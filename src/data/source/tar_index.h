// SPDX-License-Identifier: Apache-2.0
// Members of a tar archive (ustar, GNU long names, pax paths and sizes).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/codec/codec.h"

namespace pelton::data {

struct TarMember {
  std::string name;
  int64_t offset = 0, size = 0;  // of the content, in bytes
};

// `read(offset, count)` gives up to `count` bytes of the archive. Regular files only, in archive order.
// bad_format names the byte where a header's checksum or size is wrong or the archive is cut.
std::vector<TarMember> tar_members(int64_t archive_size,
                                   const std::function<std::string(int64_t, int64_t)>& read,
                                   const std::string& where);

// One member with its header and padding, for writing; finish an archive with 1024 zero bytes.
std::string tar_entry(std::string_view name, std::string_view content);

}  // namespace pelton::data
