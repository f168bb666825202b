// SPDX-License-Identifier: Apache-2.0
// What every op does with numbers, and how exact a back end must be. docs/numerics.md holds the same table
// for readers; a test keeps them equal.
#pragma once

#include <string>
#include <string_view>

#include "ir/op.h"

namespace pelton::ir {

// Rules of a class of ops. Texts are for people; back ends take the enum.
enum class NumericClass : uint8_t {
  arithmetic,   // one operation an element
  extremum,     // picks the largest or smallest
  comparison,   // yields bool
  bitwise,      // logic and shifts
  movement,     // moves bits
  sum,          // adds or multiplies many terms
  normalizing,  // exponentials, means and variances inside
  blending,     // weighted sums at computed positions
  ordering,     // sorts
  cast,
  quantize,
  random,
  structure,  // control flow, sequences, collectives: as their parts
};
struct Numerics {
  NumericClass kind;
  std::string_view name, accumulation, rounding, nan, infinity, signed_zero, overflow;
};
const Numerics& numerics(const OpDef& op);
std::string numerics_table();  // Markdown: the classes, then the ops of each

// Type that sums of `storage` run in: f32 for f16, bf16 and f32, i32 for 8-bit integers, else the type
// itself.
DType accumulator(DType storage);

}  // namespace pelton::ir
