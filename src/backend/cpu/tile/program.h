// SPDX-License-Identifier: Apache-2.0
// A tile program: a region lowered to steps over one loop nest. The nest has rows (outer dims) and within a
// row `inner` elements; without reductions a row is cut into tiles that keep all registers in L1, with
// reductions a tile is the row.
#pragma once

#include <memory>
#include <vector>

#include "backend/cpu/tile/lanes.h"
#include "backend/cpu/tile/region.h"
#include "backend/kernel.h"

namespace pelton::backend::cpu {

constexpr size_t kMaxRegisters = 192;

struct Register {
  enum Kind : uint8_t { source, constant, buffer } kind = buffer;
  Lane lane = Lane::f32;
  bool one = false;  // one value a row (or in all)
  int index = 0;     // source: in Program::sources; buffer: first use gives it a slot
  int slot = -1;     // buffer: which piece of the tile memory
  double value = 0;  // constant
};

struct Instruction {
  StepFunction f = nullptr;
  Code code = Code::none;  // f32 steps
  int in[5] = {-1, -1, -1, -1, -1};
  int out = -1, out2 = -1;
  float imm[2] = {};
  std::shared_ptr<const WideInfo> wide;
  bool one = false;  // runs on single values
};

// Something the nest reads: an input of the node or a constant tensor of the body.
struct Source {
  int input = -1;
  Tensor constant;  // when input is -1
  DType dtype = DType::f32;
  LoadFunction load = nullptr;
  std::vector<int64_t> outer, inner;  // strides in elements along the nest's dims
  bool direct = false;                // the inner run can be used where it lies
  bool one = false;                   // no stride along the inner dims
  int slot = -1;                      // tile memory for converted or gathered elements
};

struct Sink {
  int reg = -1;
  DType dtype = DType::f32;
  StoreFunction store = nullptr;
  bool row = false;  // one element a row
  std::vector<int64_t> outer, inner;
  bool direct = false;  // the register's buffer is the output itself
};

struct Program {
  Dims outer, inner;
  int64_t rows = 1, inner_count = 1, tile = 1;
  bool has_rows = false;  // reductions: a tile is a row
  bool streams = false;   // operands and results do not fit in the second-level cache
  int64_t passes = 0;     // steps that go over a whole run
  std::vector<Register> registers;
  std::vector<Instruction> code;
  std::vector<Source> sources;
  std::vector<Sink> sinks;
  int slots = 0;  // pieces of tile memory, each tile * 8 bytes at most
  int64_t slot_bytes = 0;
  bool by_rows = false;  // for run_rows: few steps, whose operands advance by one stride from row to row
  bool light = false;    // and its steps take less time than their memory
  int64_t grain = 1;     // tiles of a row times rows, per chunk
  int64_t chunks = 1;
  int64_t tiles() const { return has_rows ? 1 : (inner_count + tile - 1) / tile; }  // of one row
  int64_t scratch_bytes() const;  // 0: the tile memory fits the stack
  void choose_rows();             // sets by_rows and light

  void run(const RunArgs& args) const;
};

// The value of a constant register in its lane.
void set_constant(const Register& reg, void* to);
// Rows [begin, end) of a program that runs by rows.
void run_rows(const Program& program, const RunArgs& args, std::byte* tiles, int64_t begin, int64_t end);

// Joins cheap steps of which the second is the only reader of the first; registers in `results` have a reader
// outside.
void fuse_pairs(Program& program, const std::vector<int>& results, device::CpuIsa isa);

Program compile_program(const Region& region, const Instance& instance, const device::Target& target);

}  // namespace pelton::backend::cpu
