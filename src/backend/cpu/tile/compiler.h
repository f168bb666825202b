// SPDX-License-Identifier: Apache-2.0
// Region to program: one pass over the nodes that emits steps, then registers get places in tile memory.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/cpu/tile/nest.h"

namespace pelton::backend::cpu {

class TileCompiler {
 public:
  TileCompiler(const Region& region, const Instance& instance, const device::Target& target);
  Program run();

 private:
  const Place& place(ir::ValueId v) const { return analysis_.places[v.index]; }
  Dims concrete(const Shape& shape) const { return pelton::eval(shape, instance_.symbols); }
  DType dtype(ir::ValueId v) const { return g_.type(v).dtype; }

  // Dims of a source aligned with the space: `shape` right-aligned, or with the reduced axes put back.
  Dims aligned(const Dims& dims, bool squeezed) const;
  // The register of an operand; for inputs and constants one that reads it as the user aligns it: at the
  // right, without the reduced axes (squeezed), or a vector along `axis`.
  int use(ir::ValueId v, bool squeezed = false, int64_t axis = -1);
  // The same as f32; integers of 8 and 16 bits are never anything else on the way.
  int use_real(ir::ValueId v, int64_t axis = -1);
  int source(ir::ValueId v, bool squeezed, int64_t axis, Lane lane);
  int convert(int r, DType to);
  bool inner_is_one(const Dims& full) const;
  int constant_register(Lane lane, double value);
  int new_register(Lane lane, bool one);
  // Appends a step whose result is one value if all its operands are (or `reduces`).
  int step(StepFunction f, Lane result, std::initializer_list<int> in, float imm0 = 0, float imm1 = 0,
           std::shared_ptr<const WideInfo> wide = nullptr, bool reduces = false);
  int f32(Code code, std::initializer_list<int> in, double imm0 = 0, double imm1 = 0);
  int number(double v) { return constant_register(Lane::f32, v); }
  void set(ir::ValueId v, int r) { reg_[v.index] = r; }
  // The register that stands for a result: of whole numbers as f32, if it has one.
  int result(ir::ValueId v) const { return whole_[v.index] >= 0 ? whole_[v.index] : reg_[v.index]; }

  // emit.cc: the steps of a node.
  void emit(ir::NodeId id);
  void emit_pointwise(const ir::Node& n);
  void emit_cast(const ir::Node& n);
  void emit_norm(const ir::Node& n);
  void emit_channelwise(const ir::Node& n);
  int emit_composite(const ir::Node& n, int x);

  // allocate.cc: the nest around the steps and the memory within it.
  void add_sink(size_t output);
  void build_nest();
  void assign_slots();
  void choose_tile();
  void choose_grain();

  const Region& r_;
  const ir::Graph& g_;
  const Instance& instance_;
  const device::Target& target_;
  const Analysis analysis_;
  Dims space_;
  std::vector<Loop> loops_;
  std::vector<int> reg_;    // by value index
  std::vector<int> whole_;  // likewise: f32 registers of values that are integers in range
  std::map<uint32_t, int> input_of_;
  std::map<std::tuple<uint32_t, Dims, Lane>, int> source_regs_;
  Program p_;
};

}  // namespace pelton::backend::cpu
