// SPDX-License-Identifier: Apache-2.0
// The framing of RecordIO files, for the source and for fuzzing: a magic number, a word of 3 bits of part (0
// whole, 1 first, 2 middle, 3 last) and 29 bits of length, the payload, padding to 4 bytes. A payload that
// held the magic number itself is cut there into parts.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/sample.h"

namespace pelton::data {

struct RecordPart {
  int64_t offset, size;  // of the payload
};
using Record = std::vector<RecordPart>;

// Where the records of a file lie; bad_format names the place of what is wrong.
std::vector<Record> recordio_index(int64_t file_size,
                                   const std::function<void(int64_t, std::span<uint8_t>)>& read,
                                   const std::string& where);

// Fields of an image record: label (one or several), id, and the encoded picture.
void read_image_record(const Tensor& payload, Sample& sample, const std::string& where);

}  // namespace pelton::data
