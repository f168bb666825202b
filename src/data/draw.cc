// SPDX-License-Identifier: Apache-2.0
#include "data/draw.h"

#include <cmath>
#include <numbers>

namespace pelton::data {

PhiloxBlock Draw::block(uint32_t slot, uint32_t block_index) const {
  // A first application spreads (epoch, stage, slot) over the key, the second one counts (index, block).
  PhiloxBlock key =
      philox4x32_10({static_cast<uint32_t>(epoch_), static_cast<uint32_t>(epoch_ >> 32), stage_, slot},
                    {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  return philox4x32_10(
      {static_cast<uint32_t>(index_), static_cast<uint32_t>(index_ >> 32), block_index, key[2]},
      {key[0], key[1]});
}

uint64_t Draw::bits(uint32_t slot) const {
  auto w = block(slot, 0);
  return uint64_t{w[1]} << 32 | w[0];
}

double Draw::uniform(uint32_t slot) const {
  return static_cast<double>(bits(slot) >> 11) * 0x1p-53;
}

double Draw::normal(uint32_t slot) const {
  auto w = block(slot, 0);
  double u = (static_cast<double>(uint64_t{w[1]} << 32 | w[0]) + 0.5) * 0x1p-64;
  double v = static_cast<double>(uint64_t{w[3]} << 32 | w[2]) * 0x1p-64;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

int64_t Draw::below(uint32_t slot, int64_t n) const {
  return static_cast<int64_t>(static_cast<unsigned __int128>(bits(slot)) * static_cast<uint64_t>(n) >> 64);
}

}  // namespace pelton::data
