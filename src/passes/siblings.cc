// SPDX-License-Identifier: Apache-2.0
#include "passes/siblings.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "ir/text.h"
#include "passes/rewrite.h"
#include "passes/weight_names.h"

namespace pelton::passes {

using namespace ir;

namespace {

constexpr size_t kMaxSiblings = 16;

// A contraction of x with constant weights, and the constant that is added to its results if one is.
struct Sibling {
  NodeId node;
  NodeId add;            // matmul: the only reader, an addition of one value a column
  Tensor weights, bias;  // undefined: no bias
  int64_t outputs = 0;   // columns or channels
};

int64_t output_axis_of_weights(const Node& n) {
  return n.is("conv") || n.get_bool("transpose_b") ? 0 : 1;
}

std::optional<Sibling> sibling_of(const Graph& g, NodeId id) {
  const Node& n = g[id];
  Sibling s;
  s.node = id;
  const Tensor* weights = g.constant(input(g, id, 1));
  if (!weights || !is_float(weights->dtype()) || bits(weights->dtype()) < 16) return std::nullopt;
  s.weights = *weights;
  if (n.is("conv")) {
    if (n.get_int("groups") != 1 || n.inputs.size() > 3) return std::nullopt;
    if (const ValueId bias = input(g, id, 2)) {
      if (!g.constant(bias)) return std::nullopt;
      s.bias = *g.constant(bias);
    }
  } else {
    if (n.inputs.size() != 2 || s.weights.rank() != 2 || n.get_bool("transpose_a") ||
        g.type(n.inputs[0]).rank() < 2)
      return std::nullopt;
  }
  s.outputs = s.weights.dims()[static_cast<size_t>(output_axis_of_weights(n))];
  if (n.is("matmul") && single_use(g, n.outputs[0])) {
    const NodeId add = g[n.outputs[0]].uses[0].user;
    if (g[add].is("add")) {
      const Tensor* c = g.constant(other_operand(g, add, n.outputs[0]));
      if (c && c->dtype() == s.weights.dtype() && c->count() == s.outputs && c->rank() == 1) {
        s.add = add;
        s.bias = *c;
      }
    }
  }
  return s;
}

// Contractions that may become one: the same op, attributes and weights but for the number of outputs, and
// all or none with a bias.
std::string key_of(const Graph& g, const Sibling& s) {
  const Node& n = g[s.node];
  std::string key = cat(n.op->name, s.bias.defined() ? "+" : "", name(s.weights.dtype()));
  for (const auto& [attr, value] : n.attrs) append(key, cat(";", attr, "=", print(value)));
  Dims dims = s.weights.dims();
  dims[static_cast<size_t>(output_axis_of_weights(n))] = 0;
  return key + cat(dims);
}

Tensor concat(const std::vector<Tensor>& parts, size_t axis) {
  Dims dims = parts[0].dims();
  dims[axis] = 0;
  for (const Tensor& p : parts) dims[axis] += p.dims()[axis];
  Tensor out(parts[0].dtype(), dims);
  const int64_t width = bits(out.dtype()) / 8;
  const int64_t outer = element_count(Dims(dims.begin(), dims.begin() + static_cast<int64_t>(axis)));
  auto* to = static_cast<std::byte*>(out.mutable_data());
  for (int64_t o = 0; o < outer; ++o)
    for (const Tensor& p : parts) {
      const int64_t bytes = outer ? p.count() / outer * width : 0;
      std::memcpy(to, static_cast<const std::byte*>(p.data()) + o * bytes, static_cast<size_t>(bytes));
      to += bytes;
    }
  return out;
}

void merge_all(Graph& g, const std::vector<Sibling>& parts) {
  const Node first = g[parts[0].node];  // a copy: building moves the nodes
  const bool conv = first.is("conv");
  std::vector<Tensor> weights, biases;
  for (const Sibling& s : parts) {
    weights.push_back(s.weights);
    if (s.bias.defined()) biases.push_back(s.bias);
    forget_names(g, g[s.node].inputs[1]);
    if (s.bias.defined())
      forget_names(g, s.add ? other_operand(g, s.add, g[s.node].outputs[0]) : g[s.node].inputs[2]);
  }
  Builder b(g, parts[0].node);
  b.set_name(first.name);
  const Tensor joined = concat(weights, static_cast<size_t>(output_axis_of_weights(first)));
  std::vector<ValueId> inputs = {first.inputs[0], b.constant(joined)};
  if (conv && !biases.empty()) inputs.push_back(b.constant(concat(biases, 0)));
  ValueId y = b.op(first.op->name, inputs, first.attrs);
  if (!conv && !biases.empty()) y = b.add(y, b.constant(concat(biases, 0)));
  const int64_t axis = conv ? 1 : g.type(y).rank() - 1;
  int64_t at = 0;
  for (const Sibling& s : parts) {
    const ValueId slice = b.op("slice", {y},
                               {{"axes", Ints{axis}},
                                {"starts", Shape{Dim(at)}},
                                {"sizes", Shape{Dim(s.outputs)}},
                                {"steps", Ints{1}}});
    g.replace_uses(g[s.add ? s.add : s.node].outputs[0], slice);
    at += s.outputs;
  }
}

bool merge_once(Graph& graph, const Context& context) {
  // A GPU reads slices of a product's columns where they lie; channels of a convolution it would copy.
  const bool convs = context.target.kind == device::Kind::cpu;
  bool changed = false;
  for (ValueId x : [&] {
         std::vector<ValueId> values = graph.inputs;
         for (NodeId id : graph.order())
           for (ValueId v : graph[id].outputs) values.push_back(v);
         return values;
       }()) {
    std::map<std::string, std::vector<Sibling>> groups;
    std::vector<NodeId> readers;
    for (Use u : graph[x].uses)
      if (u.input == 0 && (graph[u.user].is("matmul") || (convs && graph[u.user].is("conv"))))
        readers.push_back(u.user);
    if (readers.size() < 2) continue;
    // In the order of the graph, so that the first stands before all of them.
    std::map<uint32_t, size_t> position;
    for (size_t i = 0; i < graph.order().size(); ++i) position[graph.order()[i].index] = i;
    std::sort(readers.begin(), readers.end(),
              [&](NodeId a, NodeId b) { return position[a.index] < position[b.index]; });
    for (NodeId id : readers)
      if (auto s = sibling_of(graph, id)) groups[key_of(graph, *s)].push_back(*s);
    for (auto& [key, parts] : groups) {
      if (parts.size() < 2) continue;
      if (parts.size() > kMaxSiblings) parts.resize(kMaxSiblings);
      merge_all(graph, parts);
      context.count("siblings/merge");
      changed = true;
    }
  }
  if (changed) {
    remove_dead(graph);
    graph.sort();
  }
  return changed;
}

}  // namespace

bool siblings(Graph& graph, const Context& context) {
  // A slice of one product may be the operand of the next siblings; each round leaves fewer contractions.
  bool changed = false;
  while (merge_once(graph, context)) changed = true;
  return changed;
}

}  // namespace pelton::passes
