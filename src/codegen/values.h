// SPDX-License-Identifier: Apache-2.0
// Elements of a graph's values as scalars of a kernel: asks for the element of a value at an index and emits
// what computes it, in the outermost loop that knows the index, once.
#pragma once

#include <map>
#include <string>

#include "codegen/kernel.h"
#include "ir/graph.h"

namespace pelton::codegen {

// Thrown inside lowering; becomes Lowered::reason.
struct Unsupported {
  std::string reason;
};

bool is_reduction(const ir::Node& n);

// The index in a row-major space of `shape` of the element at position `at`, and back. The two cancel.
Shape digits(const Dim& at, const Shape& shape);
Dim linear(const Shape& index, const Shape& shape);

class Values {
 public:
  Values(const ir::Graph& graph, Kernel& kernel, bool strict);

  void declare();  // buffers of the kernel from inputs and outputs of the graph
  void finish();   // the kernel's sizes: symbols in use that are not loop variables
  std::string new_variable();

  // A block in which `variable` is known; statements go to the innermost one unless they can go further out.
  void open(Block& block, const std::string& variable);
  void close();
  Block& block() { return *scopes_.back().block; }

  // The element of v in the type that buffers hold.
  ScalarId stored(ir::ValueId v, const Shape& index);

 private:
  using Mask = std::vector<Bound>;
  struct Scope {
    Block* block;
    std::string variable;  // empty: the kernel itself
    std::map<std::string, ScalarId> known;
  };

  ScalarId element(ir::ValueId v, const Shape& index, const Mask& mask);
  ScalarId compute(ir::ValueId v, const Shape& index, const Mask& mask);
  ScalarId load(size_t input, const Shape& index, const Mask& mask);
  ScalarId apply(ir::NodeId id, const Shape& index, const Mask& mask);
  ScalarId reduce(ir::NodeId id, const Shape& index, const Mask& mask);
  ScalarId concat(ir::NodeId id, const Shape& index, const Mask& mask);
  ScalarId pad(ir::NodeId id, const Shape& index, const Mask& mask);
  Shape operand_index(ir::NodeId id, size_t operand, const Shape& index) const;

  ScalarId emit(Statement s, DType t);
  ScalarId constant(DType t, double v);
  ScalarId constant_of(const Tensor& t, int64_t i);
  ScalarId cast(ScalarId x, DType to);
  ScalarId index_value(const Dim& at);
  ScalarId apply(std::string_view op, std::vector<ScalarId> operands, DType t);
  // true where every bound holds.
  ScalarId test(const Mask& mask);
  // Type scalars of a value of this element type have while computing.
  DType computed(DType t) const;
  // The outermost scope that knows every variable these use.
  size_t scope_of(const Shape& index, const Mask& mask) const;

  const ir::Graph& g_;
  Kernel& k_;
  bool strict_;
  std::vector<Scope> scopes_;
  size_t target_ = 0;  // scope that emit() writes to
  size_t next_variable_ = 0;
  std::string prefix_;
  std::map<std::string, size_t> depth_of_;  // scope that defines a variable
};

}  // namespace pelton::codegen
