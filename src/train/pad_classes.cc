// SPDX-License-Identifier: Apache-2.0
#include "train/pad_classes.h"

namespace pelton::train {

using namespace ir;

namespace {

constexpr int64_t kFew = 1024;     // classes; a smaller head costs little as it is
constexpr double kNever = -30000;  // also within the range of f16

}  // namespace

ValueId pad_classes(Builder& b, ValueId y, int64_t multiple) {
  const Graph& g = b.graph();
  const Shape shape = b.shape(y);
  if (shape.empty() || !shape.back().is_const()) return y;
  const int64_t classes = shape.back().value(), extra = (multiple - classes % multiple) % multiple;
  if (extra == 0 || classes < kFew) return y;
  ValueId v = y;
  for (;;) {
    const NodeId id = g[v].producer;
    if (!id || b.shape(v).empty() || !(b.shape(v).back() == Dim(classes))) return y;
    const Node& n = g[id];
    if (n.is("reshape")) {
      v = n.inputs[0];
    } else if (n.is("matmul") && n.get_bool("transpose_b") && b.rank(n.inputs[1]) == 2) {
      break;
    } else {
      return y;
    }
  }
  const Node product = g[g[v].producer];  // a copy: building moves the nodes
  b.set_name(product.name);
  ValueId table =
      b.op("pad", {product.inputs[1]}, {{"low", Shape{Dim(0), Dim(0)}}, {"high", Shape{Dim(extra), Dim(0)}}});
  std::vector<double> never(static_cast<size_t>(classes + extra), 0);
  std::fill(never.begin() + classes, never.end(), kNever);
  ValueId low = b.constant(from_doubles(b.dtype(y), {classes + extra}, never));
  ValueId logits = b.op("matmul", {product.inputs[0], table}, product.attrs);
  Shape full = shape;
  full.back() = classes + extra;
  return b.reshape(b.add(logits, low), full);
}

}  // namespace pelton::train
