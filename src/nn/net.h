// SPDX-License-Identifier: Apache-2.0
// A network under construction: the graph, the path of the layer being built, and the state slots that layers
// register under it. Names are those that PyTorch gives the same module, "layer1.0.conv1.weight".
//
//   Net net(graph, {.mode = Mode::train, .seed = 1});
//   auto at = net.scope("head");
//   y = linear(net, "fc", x, 10);          // parameters head.fc.weight [10, in], head.fc.bias [10]
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "nn/init.h"

namespace pelton::nn {

using ir::Attrs;
using ir::Builder;
using ir::Graph;
using ir::Ints;
using ir::ValueId;

enum class Mode : uint8_t { eval, train };

struct NetOptions {
  Mode mode = Mode::eval;
  uint64_t seed = 0;
  DType dtype = DType::f32;  // of parameters and statistics
  bool draw = true;          // false: slots get no initial value (one is stored later)
};

class Net {
 public:
  explicit Net(Graph& graph, NetOptions options = {});

  Builder& builder() { return b_; }
  Graph& graph() { return b_.graph(); }
  bool training() const { return options_.mode == Mode::train; }
  DType dtype() const { return options_.dtype; }
  uint64_t seed() const { return options_.seed; }

  // Layers made while the object lives are below `part`.
  class Scope {
   public:
    Scope(Net& net, std::string_view part);
    ~Scope();
    Scope(const Scope&) = delete;

   private:
    Net& net_;
    size_t length_;
  };
  Scope scope(std::string_view part) { return Scope(*this, part); }
  std::string path(std::string_view name) const;  // below the present scope

  // The parameter of this name below the present scope: made at the first call, the same value afterwards
  // (tied weights, micro-batches). A second call with other dims is a bug.
  ValueId parameter(std::string_view name, const Dims& dims, const Init& init);
  // A slot that starts at a given value (weights of an imported graph), below the present scope.
  ValueId adopt(std::string_view name, ir::SlotKind kind, Tensor initial);
  // State that the forward pass changes: its present value, and the one it takes after the run. Later reads
  // within the graph see what was stored.
  ValueId statistic(std::string_view name, const Dims& dims, double initial);
  void store_statistic(std::string_view name, ValueId value);

  // Samples that count, when a batch may be short: an i64 scalar; the rows after it are padding. None: all
  // do.
  void set_valid(ValueId count) { valid_ = count; }
  ValueId valid() const { return valid_; }
  // bool[N, 1, ...] of this rank, true for the rows of x that count; none if all do.
  ValueId valid_rows(ValueId x, int64_t rank);

  // Index in graph().slots by full name.
  const std::map<std::string, uint32_t>& slots() const { return slots_; }

 private:
  Builder b_;
  NetOptions options_;
  std::string path_;
  std::map<std::string, uint32_t> slots_;
  std::map<std::string, ValueId> now_;  // statistics as stored so far
  ValueId valid_;

  ValueId slot(const std::string& name, ir::SlotKind kind, const Dims& dims, const Init& init);
};

}  // namespace pelton::nn
