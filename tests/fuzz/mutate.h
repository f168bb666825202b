// SPDX-License-Identifier: Apache-2.0
// Mutations of fuzzed inputs: of raw bytes, and of protobuf messages as trees, so that a changed field leaves
// the lengths around it right and the change gets past the wire format.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace pelton::fuzz {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t n) { return random_() % n; }  // n > 0
  // Flips, sets, inserts, cuts and repeats bytes; takes a run of `other` where that is not empty.
  void bytes(std::string& data, std::string_view other = {});
  // Removes, repeats, moves and changes fields at any depth; bytes() where `data` is no message.
  void message(std::string& data);

 private:
  std::mt19937_64 random_;
};

}  // namespace pelton::fuzz
