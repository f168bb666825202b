// SPDX-License-Identifier: Apache-2.0
// Softmax, layer norm and RMS norm from primitives; scale and bias join the norm they follow.
#include <algorithm>

#include "passes/composites.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

// First normalised axis if `axes` are the trailing ones of the rank and the reduction keeps dims; -1
// otherwise.
int64_t trailing_axis(const Graph& g, NodeId reduce) {
  const Node& n = g[reduce];
  int64_t rank = g.type(n.inputs[0]).rank();
  Ints axes = n.get_ints("axes");
  for (int64_t& a : axes) a = a < 0 ? a + rank : a;
  std::sort(axes.begin(), axes.end());
  if (axes.empty() || !n.get_bool("keep_dims")) return -1;
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != rank - static_cast<int64_t>(axes.size()) + static_cast<int64_t>(i)) return -1;
  return axes[0];
}

// v = sqrt(m + eps): m and eps; or v = rsqrt(m + eps), reciprocal(sqrt(m + eps)), (m + eps)^-0.5 if
// `inverse`.
struct Root {
  ValueId mean_square;
  double eps;
};
std::optional<Root> root_of(const Graph& g, ValueId v, bool inverse) {
  ValueId sum;
  if (inverse) {
    if (NodeId r = producer(g, v, "rsqrt"))
      sum = input(g, r, 0);
    else if (NodeId q = producer(g, v, "reciprocal")) {
      NodeId s = producer(g, input(g, q, 0), "sqrt");
      if (!s) return std::nullopt;
      sum = input(g, s, 0);
    } else if (NodeId d = producer(g, v, "div"); d && is_uniform(g, input(g, d, 0), 1)) {
      NodeId s = producer(g, input(g, d, 1), "sqrt");
      if (!s) return std::nullopt;
      sum = input(g, s, 0);
    } else if (NodeId p = producer(g, v, "pow"); p && is_uniform(g, input(g, p, 1), -0.5)) {
      sum = input(g, p, 0);
    } else {
      return std::nullopt;
    }
  } else {
    if (NodeId s = producer(g, v, "sqrt"))
      sum = input(g, s, 0);
    else if (NodeId p = producer(g, v, "pow"); p && is_uniform(g, input(g, p, 1), 0.5))
      sum = input(g, p, 0);
    else
      return std::nullopt;
  }
  NodeId add = producer(g, sum, "add");
  auto parts = add ? with_scalar(g, add) : std::nullopt;
  if (!parts || parts->scalar < 0 || parts->scalar > 1) return std::nullopt;
  return Root{parts->x, parts->scalar};
}

// What is divided by its root mean square: y = x * rsqrt(mean(x^2) + eps) over trailing axes.
struct Normalised {
  ValueId x;
  int64_t axis;
  double eps;
};
std::optional<Normalised> normalised(const Graph& g, NodeId id) {
  auto check = [&](ValueId x, ValueId factor, bool inverse) -> std::optional<Normalised> {
    auto root = root_of(g, factor, inverse);
    NodeId mean = root ? producer(g, root->mean_square, "reduce_mean") : NodeId{};
    NodeId square = mean ? producer(g, input(g, mean, 0), "square") : NodeId{};
    if (!square || input(g, square, 0) != x) return std::nullopt;
    int64_t axis = trailing_axis(g, mean);
    if (axis < 0) return std::nullopt;
    return Normalised{x, axis, root->eps};
  };
  ValueId a = input(g, id, 0), b = input(g, id, 1);
  if (g[id].is("div")) return check(a, b, false);
  if (auto n = check(a, b, true)) return n;
  return check(b, a, true);
}

bool norm_core(Graph& g, NodeId id, const Context&) {
  auto n = normalised(g, id);
  if (!n || !is_float(g.type(n->x).dtype)) return false;
  Builder b(g, id);
  b.set_name(g[id].name);
  // x - mean(x) makes it a layer norm.
  if (NodeId sub = producer(g, n->x, "sub")) {
    ValueId x = input(g, sub, 0);
    NodeId mean = producer(g, input(g, sub, 1), "reduce_mean");
    if (mean && input(g, mean, 0) == x && trailing_axis(g, mean) == n->axis) {
      replace(g, id, b.op("layer_norm", {x}, {{"axis", n->axis}, {"eps", n->eps}}));
      return true;
    }
  }
  replace(g, id, b.op("rms_norm", {n->x}, {{"axis", n->axis}, {"eps", n->eps}}));
  return true;
}

// c has, but for leading ones, the shape of the normalised axes of x.
std::optional<Shape> affine_shape(const Graph& g, ValueId c, ValueId x, int64_t axis) {
  Shape s = g.type(c).shape;
  while (!s.empty() && s[0] == Dim(1) && static_cast<int64_t>(s.size()) > g.type(x).rank() - axis)
    s.erase(s.begin());
  Shape want(g.type(x).shape.begin() + axis, g.type(x).shape.end());
  if (s != want) return std::nullopt;
  return s;
}

bool norm_affine(Graph& g, NodeId id, const Context&) {
  bool scale = g[id].is("mul");
  for (size_t i : {size_t{0}, size_t{1}}) {
    ValueId v = input(g, id, i), c = input(g, id, 1 - i);
    for (std::string_view op : {"layer_norm", "rms_norm"}) {
      NodeId norm = producer(g, v, op);
      if (!norm || !single_use(g, v) || g[norm].outputs.size() != 1) continue;
      size_t have = g[norm].inputs.size();
      if (scale ? have != 1 : (op == "rms_norm" || have != 2)) continue;
      int64_t axis = g[norm].get_int("axis");
      ValueId x = input(g, norm, 0);
      axis = axis < 0 ? axis + g.type(x).rank() : axis;
      auto shape = affine_shape(g, c, x, axis);
      if (!shape || g.type(c).dtype != g.type(x).dtype) continue;
      Builder b(g, id);
      b.set_name(g[norm].name);
      std::vector<ValueId> inputs = g[norm].inputs;
      inputs.push_back(b.reshape(c, *shape));
      replace(g, id, b.op(op, inputs, g[norm].attrs));
      return true;
    }
  }
  return false;
}

// exp(x - max(x)) / sum(exp(x - max(x))), or without the maximum.
bool softmax(Graph& g, NodeId id, const Context&) {
  NodeId e = producer(g, input(g, id, 0), "exp"), sum = producer(g, input(g, id, 1), "reduce_sum");
  if (!e || !sum || input(g, sum, 0) != input(g, id, 0)) return false;
  const Ints& axes = g[sum].get_ints("axes");
  if (axes.size() != 1 || !g[sum].get_bool("keep_dims")) return false;
  ValueId x = input(g, e, 0);
  int64_t rank = g.type(x).rank(), axis = axes[0] < 0 ? axes[0] + rank : axes[0];
  NodeId sub = producer(g, x, "sub");
  NodeId max = sub ? producer(g, input(g, sub, 1), "reduce_max") : NodeId{};
  if (!max || input(g, max, 0) != input(g, sub, 0) || g[max].get_ints("axes").size() != 1 ||
      (g[max].get_ints("axes")[0] + rank) % rank != axis || !g[max].get_bool("keep_dims"))
    return false;  // without the maximum the spelled-out form overflows where softmax does not
  Builder b(g, id);
  b.set_name(g[id].name);
  replace(g, id, b.op("softmax", {input(g, sub, 0)}, {{"axis", axis}}));
  return true;
}

const Rule kRules[] = {
    {"composites/norm_core", {"div", "mul"}, norm_core},
    {"composites/norm_affine", {"mul", "add"}, norm_affine},
    {"composites/softmax", {"div"}, softmax},
};

}  // namespace

bool recognise_norms(Graph& graph, const Context& context) {
  return apply_rules(graph, kRules, context);
}

}  // namespace pelton::passes
