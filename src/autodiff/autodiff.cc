// SPDX-License-Identifier: Apache-2.0
#include "autodiff/autodiff.h"

#include "autodiff/reverse.h"
#include "ir/custom.h"
#include "ir/gradient.h"

namespace pelton::autodiff {

using namespace ir;

namespace {

// Removes the nodes from place `first` on that nothing reads, `kept` aside.
void remove_unused(Graph& graph, size_t first, const std::vector<ValueId>& kept) {
  std::vector<bool> keep(graph.value_count());
  for (ValueId v : kept) keep[v.index] = true;
  std::vector<NodeId> added(graph.order().begin() + static_cast<std::ptrdiff_t>(first), graph.order().end());
  for (size_t i = added.size(); i-- > 0;) {
    bool dead = effects_of(graph[added[i]]) != Effects::ordered;
    for (ValueId v : graph[added[i]].outputs) dead &= !keep[v.index] && graph.unused(v);
    if (dead) graph.remove(added[i]);
  }
}

}  // namespace

std::vector<ValueId> gradient(Graph& graph, ValueId loss, std::span<const ValueId> wrt,
                              const GradientOptions& options) {
  for (ValueId v : wrt)
    if (!differentiable(graph.type(v)))
      fail(ErrorCode::bad_type,
           cat("only floats have gradients, and ", graph.label(v), " is ", graph.type(v).str()));
  const Type type = graph.type(loss);
  if (!differentiable(type))
    fail(ErrorCode::bad_type,
         cat("the loss ", graph.label(loss), " is ", type.str(), ", not a float tensor"));
  size_t first = graph.order().size();
  Builder b(graph);
  b.set_name("loss/grad");
  ValueId seed = options.seed;
  if (!seed) {
    if (equal(element_count(type.shape), 1, graph.symbols->ranges) != Tri::yes)
      fail(ErrorCode::bad_shape, cat("the loss ", graph.label(loss), " is ", type.str(), ", not one value"),
           "", "reduce it with reduce_mean or reduce_sum");
    seed = b.reshape(b.scalar(type.dtype, 1), type.shape);
  } else if (graph.type(seed) != type) {
    fail(ErrorCode::bad_type,
         cat("the gradient of the loss is ", graph.type(seed).str(), ", but the loss ", type.str()));
  }
  Seed seeds[] = {{loss, seed}};
  std::vector<ValueId> grads = reverse(graph, seeds, wrt, options.stop);
  for (size_t i = 0; i < wrt.size(); ++i)
    if (!grads[i]) grads[i] = zeros_like(b, wrt[i]);
  remove_unused(graph, first, grads);
  return grads;
}

}  // namespace pelton::autodiff
