// SPDX-License-Identifier: Apache-2.0
#include "codegen/lower.h"

#include <algorithm>

#include "codegen/quantize.h"
#include "codegen/values.h"
#include "ir/builder.h"
#include "ir/infer.h"
#include "ir/op.h"

namespace pelton::codegen {
namespace {

using namespace ir;

// Composites become primitives, those inside them too.
Graph primitives_of(const Graph& body) {
  Graph g = body;
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId id : std::vector<NodeId>(g.order())) changed |= expand(g, id) || expand_quantization(g, id);
  }
  return g;
}

// The space the reductions of a group share: operand shape and reduced axes.
struct Space {
  Shape shape;
  Ints axes;
  bool reduces(size_t d) const {
    return std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
  }
};

Ints axes_of(const Node& n, int64_t rank) {
  Ints axes = n.get_ints("axes");
  for (int64_t& a : axes) a = a < 0 ? a + rank : a;
  std::sort(axes.begin(), axes.end());
  return axes;
}

std::optional<Space> space_of(const Graph& g) {
  std::optional<Space> space;
  for (NodeId id : g.order()) {
    const Node& n = g[id];
    if (!is_reduction(n)) continue;
    const Shape& shape = g.type(n.inputs[0]).shape;
    Space here{shape, axes_of(n, static_cast<int64_t>(shape.size()))};
    if (space && (space->shape != here.shape || space->axes != here.axes))
      throw Unsupported{cat("reductions of ", cat(space->shape), " over ", space->axes, " and of ",
                            cat(here.shape), " over ", here.axes, " in one group")};
    space = std::move(here);
  }
  return space;
}

class Lowering {
 public:
  Lowering(const Graph& g, std::string kernel_name, const LowerOptions& options)
      : g_(g), values_(g, kernel_, options.strict) {
    kernel_.name = std::move(kernel_name);
  }

  Kernel run() {
    values_.declare();
    std::optional<Space> space = space_of(g_);
    if (space)
      rows(*space);
    else
      elements();
    values_.finish();
    verify(kernel_);
    return std::move(kernel_);
  }

 private:
  // Opens a loop, emits `body` in it, closes it.
  template <class F>
  void loop(LoopKind kind, const std::string& variable, Dim extent, F&& body) {
    Statement s;
    s.kind = Statement::Kind::loop;
    s.loop = kind;
    s.variable = variable;
    s.extent = std::move(extent);
    values_.open(s.body, variable);
    body();
    values_.close();
    values_.block().push_back(std::move(s));
  }

  // result[index] = element `at` of v, which is the result itself or has its elements in the same order.
  void store(size_t output, const Shape& index, ValueId v, const Shape& at) {
    ScalarId value = values_.stored(v, at);
    Statement s;
    s.kind = Statement::Kind::store;
    s.buffer = static_cast<uint32_t>(g_.inputs.size() + output);
    s.index = index;
    s.operands = {value};
    values_.block().push_back(std::move(s));
  }
  void store(size_t output, const Shape& index) { store(output, index, g_.outputs[output], index); }

  // The value of shape `shape` that v is a reshape of, if it is one.
  ValueId before_reshape(ValueId v, const Shape& shape) const {
    ValueId from = v;
    while (g_.type(from).shape != shape) {
      NodeId id = g_[from].producer;
      if (!id || !g_[id].is("reshape")) return v;
      from = g_[id].inputs[0];
    }
    return from;
  }

  // One loop over the elements of the results, which all have the same number.
  void elements() {
    Dim count = element_count(g_.type(g_.outputs[0]).shape);
    for (ValueId v : g_.outputs)
      if (element_count(g_.type(v).shape) != count)
        throw Unsupported{
            cat("results of ", count.str(), " and ", element_count(g_.type(v).shape).str(), " elements")};
    std::string i = values_.new_variable();
    loop(LoopKind::grid, i, count, [&] {
      for (size_t o = 0; o < g_.outputs.size(); ++o)
        store(o, digits(Dim::symbol(i), g_.type(g_.outputs[o]).shape));
    });
  }

  // Rows are the dims that are not reduced; a result has one element a row, or all of a row's.
  void rows(const Space& space) {
    Shape outer, inner;
    for (size_t d = 0; d < space.shape.size(); ++d)
      (space.reduces(d) ? inner : outer).push_back(space.shape[d]);
    Dim row_count = element_count(outer), row_size = element_count(inner);
    std::vector<size_t> whole;
    std::string row = values_.new_variable();
    loop(LoopKind::grid, row, row_count, [&] {
      for (size_t o = 0; o < g_.outputs.size(); ++o) {
        const Shape& shape = g_.type(g_.outputs[o]).shape;
        if (shape == space.shape)
          whole.push_back(o);
        else if (element_count(shape) == row_count)
          store(o, digits(Dim::symbol(row), shape));
        else if (element_count(shape) == row_count * row_size)
          whole.push_back(o);
        else
          throw Unsupported{cat("a result of shape ", cat(shape), " beside rows of ", cat(space.shape))};
      }
      if (whole.empty()) return;
      std::string lane = values_.new_variable();
      loop(LoopKind::lanes, lane, row_size, [&] {
        Shape row_digits = digits(Dim::symbol(row), outer), lane_digits = digits(Dim::symbol(lane), inner),
              at;
        for (size_t d = 0, r = 0, l = 0; d < space.shape.size(); ++d)
          at.push_back(space.reduces(d) ? lane_digits[l++] : row_digits[r++]);
        for (size_t o : whole) {
          const Shape& shape = g_.type(g_.outputs[o]).shape;
          ValueId v = before_reshape(g_.outputs[o], space.shape);
          Shape index = shape == space.shape ? at : digits(linear(at, space.shape), shape);
          store(o, index, v, g_.type(v).shape == space.shape ? at : index);
        }
      });
    });
  }

  const Graph& g_;
  Kernel kernel_;
  Values values_;
};

}  // namespace

Lowered lower(const Graph& body, std::string name, const LowerOptions& options) {
  Lowered out;
  try {
    Graph g = primitives_of(body);
    out.kernel = Lowering(g, std::move(name), options).run();
  } catch (const Unsupported& u) {
    out.reason = u.reason;
  }
  return out;
}

}  // namespace pelton::codegen
