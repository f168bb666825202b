// SPDX-License-Identifier: Apache-2.0
// The framing of TFRecord files.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "data/codec/codec.h"

namespace pelton::data {

uint32_t masked_crc32c(Bytes bytes);
// (offset, size) of every payload. `read` fills its span from a position. bad_format names the byte.
std::vector<std::pair<int64_t, int64_t>> tfrecord_index(
    int64_t file_size, const std::function<void(int64_t, std::span<uint8_t>)>& read,
    const std::string& where);
std::string tfrecord_entry(std::string_view payload);  // one framed record

}  // namespace pelton::data
