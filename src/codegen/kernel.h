// SPDX-License-Identifier: Apache-2.0
// The kernel IR: what a fused group computes, as loops over index variables, loads and stores at index
// expressions, scalar operations and reductions, with masks; nothing about a target. Emitters read only this.
//
// Index expressions and loop extents are Dims over the kernel's sizes (symbols of the graph) and its loop
// variables. Buffers are dense and row-major. A scalar has an element type; f16 and bf16 scalars are f32
// numbers that were rounded to the type, integers are 64-bit numbers wrapped to the type.
#pragma once

#include <string>
#include <vector>

#include "tensor/dim.h"
#include "tensor/dtype.h"

namespace pelton::codegen {

struct Buffer {
  std::string name;
  bool output = false;
  DType dtype = DType::f32;
  Shape dims;
};

// 0 <= value < limit, the condition under which a load reads (outside it yields `otherwise`).
struct Bound {
  Dim value, limit;
  bool operator==(const Bound&) const = default;
};

using ScalarId = uint32_t;  // index in Kernel::scalar_types; defined once, visible in the blocks below

struct Statement;
using Block = std::vector<Statement>;

enum class LoopKind : uint8_t {
  grid,    // iterations are independent and may run anywhere
  lanes,   // independent, shared out among the workers of one grid iteration
  serial,  // in order
};

struct Statement {
  enum class Kind : uint8_t {
    constant,  // result = real (floats) or integer
    index,     // result (i64) = index[0]
    load,      // result = buffer[index...], or `real` / `integer` where a mask bound fails
    apply,     // result = op(operands...), `op` a pointwise row of the op table; types as the graph has them
    cast,      // result = operands[0] as the result's type
    reduce,    // result = op over `variable` < extent of operands[0], computed by `body` each time
    loop,      // body for each `variable` < extent
    store,     // buffer[index...] = operands[0]
  } kind = Kind::constant;
  ScalarId result = 0;
  double real = 0;
  int64_t integer = 0;
  std::string op;  // apply: row of the table; reduce: sum, prod, max, min
  std::vector<ScalarId> operands;
  uint32_t buffer = 0;
  Shape index;
  std::vector<Bound> mask;
  LoopKind loop = LoopKind::serial;
  std::string variable;
  Dim extent;
  Block body;
};

struct Kernel {
  std::string name;
  std::vector<std::string> sizes;  // symbols given at launch
  std::vector<Buffer> buffers;     // inputs in order of the group's inputs, then outputs
  std::vector<DType> scalar_types;
  Block body;

  ScalarId add_scalar(DType t) {
    scalar_types.push_back(t);
    return static_cast<ScalarId>(scalar_types.size() - 1);
  }
};

std::string_view name(LoopKind kind);

// Text form; parse(print(k)) prints the same. bad_format errors give the line.
std::string print(const Kernel& kernel);
Kernel parse_kernel(std::string_view text);

// Checks definitions before use, types of operations, numbers of indices; internal error naming the
// statement.
void verify(const Kernel& kernel);

}  // namespace pelton::codegen
