// SPDX-License-Identifier: Apache-2.0
// Orders of packed weights by their names, read without the library that packed them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace pelton::runtime {

// Whether the order only moves elements, so that unpack() can undo it: "onednn 3.7" and two descriptions, of
// the plain and of the packed data, each " TYPE[PADDED DIMS][STRIDES]" and " NofAXIS" for every inner block.
// Other orders (transformed weights) lose bits.
bool is_invertible(std::string_view order, size_t packed_bytes, size_t plain_bytes);

// The plain bytes of packed ones; is_invertible() must hold.
void unpack(std::string_view order, std::span<const std::byte> packed, std::byte* plain);

}  // namespace pelton::runtime
