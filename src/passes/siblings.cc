// SPDX-License-Identifier: Apache-2.0
#include "passes/siblings.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

// matmul(x, W[K, N]), perhaps + b[N]; `result` is what the rest of the graph reads.
struct Product {
  NodeId matmul;
  const Tensor* weights = nullptr;
  const Tensor* bias = nullptr;
  ValueId result;
};

std::optional<Product> product_of(const Graph& g, NodeId id) {
  const Node& n = g[id];
  if (!n.is("matmul") || n.get_bool("transpose_a") || n.get_bool("transpose_b") || n.inputs.size() != 2)
    return std::nullopt;
  Product p{id, g.constant(n.inputs[1]), nullptr, n.outputs[0]};
  if (!p.weights || p.weights->rank() != 2 || !is_float(p.weights->dtype()) || g.type(n.inputs[0]).rank() < 2)
    return std::nullopt;
  if (!single_use(g, p.result)) return p;
  NodeId user = g[p.result].uses[0].user;
  if (!g[user].is("add")) return p;
  ValueId other = other_operand(g, user, p.result);
  const Tensor* bias = other ? g.constant(other) : nullptr;
  if (bias && bias->rank() == 1 && bias->count() == p.weights->dims()[1] &&
      bias->dtype() == p.weights->dtype()) {
    p.bias = bias;
    p.result = result(g, user);
  }
  return p;
}

// Columns of the matrices side by side; a vector is a matrix of one row.
Tensor beside(const std::vector<const Tensor*>& parts) {
  int64_t columns = 0, rows = parts[0]->rank() == 2 ? parts[0]->dims()[0] : 1;
  for (const Tensor* t : parts) columns += t->dims().back();
  Dims dims = parts[0]->dims();
  dims.back() = columns;
  Tensor out(parts[0]->dtype(), dims);
  auto to = static_cast<std::byte*>(out.mutable_data());
  for (int64_t r = 0; r < rows; ++r)
    for (const Tensor* t : parts) {
      int64_t bytes = byte_size(t->dtype(), t->dims().back());
      std::memcpy(to, static_cast<const std::byte*>(t->data()) + r * bytes, static_cast<size_t>(bytes));
      to += bytes;
    }
  return out;
}

bool merge(Graph& g, ValueId x, const std::vector<Product>& products) {
  std::vector<const Tensor*> weights, biases;
  for (const Product& p : products) {
    weights.push_back(p.weights);
    if (p.bias) biases.push_back(p.bias);
  }
  if (!biases.empty() && biases.size() != products.size()) return false;
  // In front of the first reader, where x is known and no result is read yet.
  NodeId first = products[0].matmul;
  for (NodeId id : g.order())
    if (std::any_of(products.begin(), products.end(), [&](const Product& p) { return p.matmul == id; })) {
      first = id;
      break;
    }
  Builder b(g, first);
  b.set_name(g[first].name);
  ValueId y = b.matmul(x, b.constant(beside(weights)));
  if (!biases.empty()) y = b.add(y, b.constant(beside(biases)));
  auto axis = static_cast<int64_t>(b.rank(y)) - 1;
  int64_t at = 0;
  for (const Product& p : products) {
    int64_t columns = p.weights->dims()[1];
    ValueId part = b.op("slice", {y},
                        {{"axes", Ints{axis}},
                         {"starts", Shape{Dim(at)}},
                         {"sizes", Shape{Dim(columns)}},
                         {"steps", Ints{1}}});
    g.replace_uses(p.result, part);
    at += columns;
  }
  return true;
}

}  // namespace

bool siblings(Graph& graph, const Context& context) {
  if (context.target.kind == device::Kind::cpu) return false;
  std::map<std::pair<uint32_t, DType>, std::vector<Product>> by_operand;
  for (NodeId id : graph.order())
    if (std::optional<Product> p = product_of(graph, id); p && !graph.is_output(p->result))
      by_operand[{graph[id].inputs[0].index, p->weights->dtype()}].push_back(*p);
  bool changed = false;
  for (const auto& [key, products] : by_operand) {
    if (products.size() < 2 || !merge(graph, ValueId{key.first}, products)) continue;
    context.count("siblings/merge");
    changed = true;
  }
  if (changed) {
    graph.sort();
    remove_dead(graph);
  }
  return changed;
}

}  // namespace pelton::passes
