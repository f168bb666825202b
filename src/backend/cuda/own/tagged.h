// SPDX-License-Identifier: Apache-2.0
// A number that one block hands to another (own/together.cuh).
#pragma once

#include <cstdint>

namespace pelton::backend::cuda {

struct alignas(8) Tagged {
  float value;
  uint32_t tag;
};
// In memory filled with bytes of 255 no number is there yet.
constexpr uint32_t kNoTag = 0xFFFFFFFF;

}  // namespace pelton::backend::cuda
