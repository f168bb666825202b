// SPDX-License-Identifier: Apache-2.0
// Random numbers as a pure function of (seed, step, node, element): Philox-4x32 with 10 rounds. No state, so
// the bits do not depend on thread count, fusion, recomputation or sharding.
//
// One block of four words serves four neighbouring elements: element i uses word i % 4 of block i / 4.
// uniform() and normal() use only integer operations and IEEE add, multiply, divide and square root in a
// fixed order, so any device that computes those exactly (without contraction to fused multiply-add) agrees
// in every bit.
#pragma once

#include <array>
#include <cstdint>

namespace pelton {

using PhiloxBlock = std::array<uint32_t, 4>;

// The published function: counter and key to four words.
constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t{0xD2511F53} * counter[0];
    uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Where a random op draws from: the seed of the run, its step and the node's stable id. Steps and node ids
// count modulo 2^32.
struct RandomStream {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t node = 0;

  constexpr PhiloxBlock block(uint64_t index) const {
    return philox4x32_10({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                          static_cast<uint32_t>(node), static_cast<uint32_t>(step)},
                         {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  }
  constexpr uint32_t bits(uint64_t element) const { return block(element / 4)[element % 4]; }
  constexpr float uniform(uint64_t element) const;  // [0, 1), multiples of 2^-24
  double normal(uint64_t element) const;            // mean 0, variance 1, |x| < 6.7
};

constexpr float uniform_from_bits(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}
constexpr float RandomStream::uniform(uint64_t element) const {
  return uniform_from_bits(bits(element));
}

// Two independent normal numbers from two words.
struct NormalPair {
  double first, second;
};
NormalPair normal_from_bits(uint32_t radius_word, uint32_t angle_word);

}  // namespace pelton
