// SPDX-License-Identifier: Apache-2.0
#include "passes/simplify.h"

#include <cmath>

#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

// x op c == x for a uniform c whose shape does not widen x.
bool drop_neutral(Graph& g, NodeId id, double neutral, bool commutes) {
  ValueId a = input(g, id, 0), b = input(g, id, 1), out = result(g, id);
  if (is_uniform(g, b, neutral) && same_shape(g, a, out)) {
    replace(g, id, a);
    return true;
  }
  if (commutes && is_uniform(g, a, neutral) && same_shape(g, b, out)) {
    replace(g, id, b);
    return true;
  }
  return false;
}
bool mul_one(Graph& g, NodeId id, const Context&) {
  return drop_neutral(g, id, 1, true);
}
bool add_zero(Graph& g, NodeId id, const Context&) {
  return drop_neutral(g, id, 0, true);
}
bool sub_zero(Graph& g, NodeId id, const Context&) {
  return drop_neutral(g, id, 0, false);
}
bool div_one(Graph& g, NodeId id, const Context&) {
  return drop_neutral(g, id, 1, false);
}
bool pow_one(Graph& g, NodeId id, const Context&) {
  return drop_neutral(g, id, 1, false);
}

bool pow_two(Graph& g, NodeId id, const Context&) {
  ValueId x = input(g, id, 0);
  if (!is_uniform(g, input(g, id, 1), 2) || !same_shape(g, x, result(g, id))) return false;
  Builder b(g, id);
  b.set_name(g[id].name);
  replace(g, id, b.op("square", {x}));
  return true;
}

bool mul_self(Graph& g, NodeId id, const Context&) {
  ValueId x = input(g, id, 0);
  if (x != input(g, id, 1)) return false;
  Builder b(g, id);
  b.set_name(g[id].name);
  replace(g, id, b.op("square", {x}));
  return true;
}

// Division by a power of two is multiplication by its exact reciprocal.
bool div_power_of_two(Graph& g, NodeId id, const Context&) {
  ValueId x = input(g, id, 0), c = input(g, id, 1);
  DType t = g.type(x).dtype;
  auto v = uniform(g, c);
  if (!v || (t != DType::f32 && t != DType::f64)) return false;
  int exponent;
  double m = std::frexp(*v, &exponent);
  if ((m != 0.5 && m != -0.5) || exponent < -60 || exponent > 60) return false;
  Builder b(g, id);
  b.set_name(g[id].name);
  ValueId r = b.constant(Tensor::full(t, g.constant(c)->dims(), 1 / *v));
  replace(g, id, b.mul(x, r));
  return true;
}

// f(f(x)) == x
bool involution(Graph& g, NodeId id, const Context&) {
  NodeId inner = producer(g, input(g, id, 0), g.op(id).name);
  if (!inner) return false;
  replace(g, id, input(g, inner, 0));
  return true;
}
// f(f(x)) == f(x)
bool idempotent(Graph& g, NodeId id, const Context&) {
  if (!producer(g, input(g, id, 0), g.op(id).name)) return false;
  replace(g, id, input(g, id, 0));
  return true;
}

bool select_constant(Graph& g, NodeId id, const Context&) {
  auto c = uniform(g, input(g, id, 0));
  ValueId picked = c ? input(g, id, *c != 0 ? 1 : 2) : ValueId{};
  if (input(g, id, 1) == input(g, id, 2)) picked = input(g, id, 1);
  if (!picked || !same_shape(g, picked, result(g, id))) return false;
  replace(g, id, picked);
  return true;
}

// Every value of `from` is a value of `to`.
bool widens(DType from, DType to) {
  if (from == to) return true;
  if (from == DType::boolean) return is_compute(to);
  if (is_float(from) && is_float(to)) {
    if (to == DType::f64) return true;
    if (to == DType::f32) return from != DType::f64;
    return false;
  }
  if (is_int(from) && is_float(to)) {
    int digits = to == DType::f64    ? 53
                 : to == DType::f32  ? 24
                 : to == DType::f16  ? 11
                 : to == DType::bf16 ? 8
                                     : 0;
    return bits(from) <= digits;
  }
  if (is_int(from) && is_int(to))
    return lowest(from) >= lowest(to) && highest(from) <= highest(to) && !(bits(from) == 64 && from != to);
  return false;
}

bool cast_same(Graph& g, NodeId id, const Context&) {
  if (g.type(input(g, id, 0)).dtype != g[id].get_dtype("to")) return false;
  replace(g, id, input(g, id, 0));
  return true;
}
// cast(cast(x, wider), T): the detour loses nothing.
bool cast_chain(Graph& g, NodeId id, const Context&) {
  NodeId inner = producer(g, input(g, id, 0), "cast");
  if (!inner) return false;
  ValueId x = input(g, inner, 0);
  if (!widens(g.type(x).dtype, g[inner].get_dtype("to"))) return false;
  Builder b(g, id);
  b.set_name(g[id].name);
  Attrs attrs = g[id].attrs;
  ValueId y = g.type(x).dtype == g[id].get_dtype("to") ? x : b.op("cast", {x}, attrs);
  replace(g, id, y);
  return true;
}

bool neg_into_sub(Graph& g, NodeId id, const Context&) {  // a + (-b) == a - b
  for (size_t i : {size_t{1}, size_t{0}}) {
    NodeId n = producer(g, input(g, id, i), "neg");
    if (!n || !single_use(g, input(g, id, i))) continue;
    Builder b(g, id);
    b.set_name(g[id].name);
    replace(g, id, b.sub(input(g, id, 1 - i), input(g, n, 0)));
    return true;
  }
  return false;
}

// --- control flow and containers decided at compile time -------------------------------------------------

bool if_constant(Graph& g, NodeId id, const Context&) {
  auto c = uniform(g, input(g, id, 0));
  if (!c) return false;
  const Node& n = g[id];
  auto held = std::get<GraphPtr>(n.attr(*c != 0 ? "then" : "else"));
  if (!held->slots.empty()) return false;
  std::vector<ValueId> arguments(n.inputs.begin() + 1, n.inputs.end());
  Builder b(g, id);
  const std::vector<ValueId> results = inline_graph(b, *held, arguments);
  for (size_t i = 0; i < results.size(); ++i) g.replace_uses(g[id].outputs[i], results[i]);
  return true;
}

bool seq_at_known(Graph& g, NodeId id, const Context&) {
  NodeId made = producer(g, input(g, id, 0), "seq_make");
  const Tensor* at = elements(g, input(g, id, 1));
  if (!made || !at || at->count() != 1) return false;
  auto count = static_cast<int64_t>(g[made].inputs.size());
  int64_t i = at->get_int(0) < 0 ? at->get_int(0) + count : at->get_int(0);
  if (i < 0 || i >= count) return false;
  replace(g, id, input(g, made, static_cast<size_t>(i)));
  return true;
}
bool seq_length_known(Graph& g, NodeId id, const Context&) {
  NodeId made = producer(g, input(g, id, 0), "seq_make");
  if (!made) return false;
  Builder b(g, id);
  replace(g, id, b.constant(Tensor::scalar<int64_t>(static_cast<int64_t>(g[made].inputs.size()))));
  return true;
}
bool opt_get_known(Graph& g, NodeId id, const Context&) {
  NodeId made = producer(g, input(g, id, 0), "opt_make");
  if (!made || !input(g, made, 0)) return false;
  g.replace_uses(result(g, id), input(g, made, 0));
  return true;
}

const Rule kRules[] = {
    {"simplify/mul_one", {"mul"}, mul_one},
    {"simplify/mul_self", {"mul"}, mul_self},
    {"simplify/add_zero", {"add", "or", "xor"}, add_zero},
    {"simplify/sub_zero", {"sub", "shift_left", "shift_right"}, sub_zero},
    {"simplify/div_one", {"div"}, div_one},
    {"simplify/div_power_of_two", {"div"}, div_power_of_two},
    {"simplify/pow_one", {"pow"}, pow_one},
    {"simplify/pow_two", {"pow"}, pow_two},
    {"simplify/involution", {"neg", "not"}, involution},
    {"simplify/idempotent", {"relu", "abs", "floor", "ceil", "round", "trunc", "sign"}, idempotent},
    {"simplify/neg_into_sub", {"add"}, neg_into_sub},
    {"simplify/select_constant", {"select"}, select_constant},
    {"simplify/cast_same", {"cast"}, cast_same},
    {"simplify/cast_chain", {"cast"}, cast_chain},
    {"simplify/if_constant", {"if"}, if_constant},
    {"simplify/seq_at_known", {"seq_at"}, seq_at_known},
    {"simplify/seq_length_known", {"seq_length"}, seq_length_known},
    {"simplify/opt_get_known", {"opt_get"}, opt_get_known},
};

}  // namespace

bool simplify(Graph& graph, const Context& context) {
  return apply_rules(graph, kRules, context);
}

}  // namespace pelton::passes
