// SPDX-License-Identifier: Apache-2.0
// The records of an LMDB file's main table: a walk over its tree that trusts nothing it reads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace pelton::data {

struct LmdbRecord {
  std::string key;
  int64_t offset, size;  // of the value, in the file
};

// In the order of the keys. bad_format errors name the page; every record lies inside the file.
std::vector<LmdbRecord> lmdb_index(int64_t file_size,
                                   const std::function<void(int64_t offset, std::span<uint8_t> into)>& read,
                                   const std::string& where);

}  // namespace pelton::data
