// SPDX-License-Identifier: Apache-2.0
// Caffe's Datum message: an encoded file, or raw values [channels, height, width] with blue first.
#pragma once

#include <string_view>

#include "data/sample.h"

namespace pelton::data {

// Fields label (i64) and image: u8 [bytes] of a file, or u8 [h, w, c] with red first; other values as f32
// field data [channels, height, width].
void read_datum(std::string_view message, Sample& sample);

}  // namespace pelton::data
