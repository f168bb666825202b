// SPDX-License-Identifier: Apache-2.0
// Tree ensembles over x[N,F] -> [N,T]. Nodes are numbered from 0; attributes give for each node
//   modes     0 <=  1 <  2 >=  3 >  4 ==  5 !=  6 member of a set  7 leaf
//   features  column of x that the node tests
//   splits    what it compares with; for mode 6 the index in `members` where its set starts (NaN ends a set)
//   yes, no   next node; for a leaf: first index in leaf_targets and leaf_weights, and how many
//   missing_yes  1: NaN takes the yes branch, 0, or an empty list: the no branch, whatever the mode
#include <cmath>

#include "ir/ops/composite.h"

namespace pelton::ir {
namespace {

constexpr auto kUsage = ErrorCode::usage;
constexpr int64_t kMember = 6, kLeaf = 7;

void infer_trees(InferContext& c) {
  const Node& n = c.node;
  c.require(supports_number(c.dtype(0)), ErrorCode::bad_type, "C1", cat("does not take ", name(c.dtype(0))));
  DType to = n.get_dtype("to");
  c.require(supports_float(to), ErrorCode::bad_type, "C1", cat("does not yield ", name(to)));
  c.require(c.rank(0) == 2, ErrorCode::bad_shape, "C2", cat("needs x[N,F], not ", cat(c.shape(0))));
  const Ints &modes = n.get_ints("modes"), &features = n.get_ints("features"), &yes = n.get_ints("yes");
  const Ints &no = n.get_ints("no"), &missing = n.get_ints("missing_yes"),
             &targets = n.get_ints("leaf_targets");
  const Floats &splits = n.get_floats("splits"), &members = n.get_floats("members");
  size_t count = modes.size();
  c.require(features.size() == count && splits.size() == count && yes.size() == count && no.size() == count &&
                (missing.empty() || missing.size() == count),
            kUsage, "C3", cat("needs one value a node in every list, of ", count, " nodes"));
  c.require(targets.size() == n.get_floats("leaf_weights").size(), kUsage, "C3",
            "needs one weight a leaf target");
  int64_t outputs = n.get_int("targets");
  c.require(outputs >= 1, kUsage, "C4", cat("has ", outputs, " targets"));
  for (int64_t t : targets)
    c.require(t >= 0 && t < outputs, kUsage, "C4", cat("has target ", t, " of ", outputs));
  const Floats& base = n.get_floats("base");
  c.require(base.empty() || static_cast<int64_t>(base.size()) == outputs, kUsage, "C4",
            cat("has ", base.size(), " base values for ", outputs, " targets"));
  auto inside = [](int64_t i, size_t size) { return i >= 0 && static_cast<size_t>(i) < size; };
  const Dim& width = c.shape(0)[1];
  for (size_t i = 0; i < count; ++i) {
    c.require(modes[i] >= 0 && modes[i] <= kLeaf, kUsage, "C3", cat("has mode ", modes[i], " at node ", i));
    if (modes[i] == kLeaf) {
      c.require(yes[i] >= 0 && no[i] >= 0 && static_cast<size_t>(yes[i]) <= targets.size() &&
                    static_cast<size_t>(no[i]) <= targets.size() - static_cast<size_t>(yes[i]),
                kUsage, "C3", cat("has a leaf outside the lists at node ", i));
      continue;
    }
    c.require(inside(yes[i], count) && inside(no[i], count), kUsage, "C3",
              cat("goes from node ", i, " to ", yes[i], " and ", no[i], " of ", count));
    c.require(features[i] >= 0 && (!width.is_const() || features[i] < width.value()), kUsage, "C3",
              cat("tests column ", features[i], " of ", width.str(), " at node ", i));
    if (modes[i] == kMember)
      c.require(splits[i] >= 0 && splits[i] < static_cast<double>(members.size()), kUsage, "C3",
                cat("has its set outside the members at node ", i));
  }
  // No node may reach itself: depth-first with 1 for nodes on the way, 2 for nodes done.
  std::vector<uint8_t> state(count, 0);
  for (int64_t root : n.get_ints("roots")) {
    c.require(inside(root, count), kUsage, "C3", cat("has root ", root, " of ", count, " nodes"));
    std::vector<size_t> stack{static_cast<size_t>(root)};
    while (!stack.empty()) {
      size_t i = stack.back();
      if (state[i] || modes[i] == kLeaf) {
        state[i] = 2;
        stack.pop_back();
        continue;
      }
      state[i] = 1;
      for (int64_t next : {yes[i], no[i]}) {
        c.require(state[static_cast<size_t>(next)] != 1, kUsage, "C3",
                  cat("has a cycle through node ", next));
        if (!state[static_cast<size_t>(next)]) stack.push_back(static_cast<size_t>(next));
      }
    }
  }
  for (std::string_view attr : {"aggregate", "transform"}) {
    const std::string& v = n.get_text(attr);
    bool known = attr == "aggregate" ? v == "sum" || v == "average" || v == "min" || v == "max"
                                     : v == "none" || v == "softmax" || v == "logistic" ||
                                           v == "softmax_zero" || v == "probit";
    c.require(known, kUsage, "C5", cat("has no ", attr, " '", v, "'"));
  }
  c.output(0, to, {c.shape(0)[0], Dim(outputs)});
}

bool takes_yes(const Node& n, size_t i, double x) {
  const Ints& missing = n.get_ints("missing_yes");
  if (std::isnan(x)) return !missing.empty() && missing[i];
  double split = n.get_floats("splits")[i];
  switch (n.get_ints("modes")[i]) {
    case 0:
      return x <= split;
    case 1:
      return x < split;
    case 2:
      return x >= split;
    case 3:
      return x > split;
    case 4:
      return x == split;
    case 5:
      return x != split;
    default:
      break;
  }
  const Floats& members = n.get_floats("members");
  for (auto k = static_cast<size_t>(split); k < members.size() && !std::isnan(members[k]); ++k)
    if (members[k] == x) return true;
  return false;
}

// Inverse of the error function on (-1, 1): Newton steps from a rational start.
double inverse_erf(double y) {
  if (y <= -1 || y >= 1) return std::copysign(INFINITY, y);
  double l = std::log1p(-y * y), a = 0.147, b = 2 / (M_PI * a) + l / 2;
  double x = std::copysign(std::sqrt(std::sqrt(b * b - l / a) - b), y);
  for (int i = 0; i < 4; ++i) x -= (std::erf(x) - y) / (2 / std::sqrt(M_PI) * std::exp(-x * x));
  return x;
}

void transform(const std::string& kind, double* v, size_t n) {
  if (kind == "logistic")
    for (size_t i = 0; i < n; ++i) v[i] = 1 / (1 + std::exp(-v[i]));
  if (kind == "probit")
    for (size_t i = 0; i < n; ++i) v[i] = M_SQRT2 * inverse_erf(2 * v[i] - 1);
  if (kind != "softmax" && kind != "softmax_zero") return;
  // softmax_zero leaves zeros at zero.
  double top = -INFINITY, sum = 0;
  for (size_t i = 0; i < n; ++i) top = std::max(top, v[i]);
  for (size_t i = 0; i < n; ++i) {
    if (kind == "softmax_zero" && std::fabs(v[i]) <= 1e-7) continue;
    v[i] = std::exp(v[i] - top);
    sum += v[i];
  }
  for (size_t i = 0; i < n; ++i) v[i] = sum == 0 ? 0 : v[i] / sum;
}

void eval_trees(EvalContext& c) {
  const Node& n = c.node;
  const Ints &modes = n.get_ints("modes"), &features = n.get_ints("features"), &yes = n.get_ints("yes");
  const Ints &no = n.get_ints("no"), &roots = n.get_ints("roots"), &leaf_targets = n.get_ints("leaf_targets");
  const Floats &weights = n.get_floats("leaf_weights"), &base = n.get_floats("base");
  const std::string& aggregate = n.get_text("aggregate");
  int64_t rows = c.in(0).dims()[0], width = c.in(0).dims()[1];
  auto targets = static_cast<size_t>(n.get_int("targets"));
  std::vector<double> x = to_doubles(c.in(0)), out;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> score(targets, 0);
    std::vector<bool> found(targets, false);
    for (int64_t root : roots) {
      auto i = static_cast<size_t>(root);
      while (modes[i] != kLeaf) {
        if (features[i] >= width)
          c.refuse(ErrorCode::bad_shape, cat("tests column ", features[i], " of ", width));
        i = static_cast<size_t>(takes_yes(n, i, x[static_cast<size_t>(r * width + features[i])]) ? yes[i]
                                                                                                 : no[i]);
      }
      for (int64_t k = yes[i]; k < yes[i] + no[i]; ++k) {
        auto t = static_cast<size_t>(leaf_targets[static_cast<size_t>(k)]);
        double w = weights[static_cast<size_t>(k)];
        if (aggregate == "min")
          score[t] = found[t] ? std::min(score[t], w) : w;
        else if (aggregate == "max")
          score[t] = found[t] ? std::max(score[t], w) : w;
        else
          score[t] += w;
        found[t] = true;
      }
    }
    for (size_t t = 0; t < targets; ++t) {
      if (aggregate == "average") score[t] /= static_cast<double>(roots.size());
      if (!base.empty()) score[t] += base[t];
    }
    transform(n.get_text("transform"), score.data(), targets);
    out.insert(out.end(), score.begin(), score.end());
  }
  c.out(0, from_doubles(n.get_dtype("to"), {rows, static_cast<int64_t>(targets)}, out));
}

double tree_flops(const Graph&, const Node& n, const std::vector<Dims>& in, const std::vector<Dims>&) {
  auto roots = static_cast<double>(n.get_ints("roots").size());
  double depth = std::log2(static_cast<double>(n.get_ints("modes").size()) / std::max(roots, 1.0) + 1);
  return static_cast<double>(in[0][0]) * roots * depth;
}

}  // namespace

void add_trees(OpRows& rows) {
  OpDef row;
  row.name = "tree_ensemble";
  row.family = Family::composite;
  const std::optional<Attr> required;
  row.attrs = {{"modes", AttrKind::ints, required},
               {"features", AttrKind::ints, required},
               {"splits", AttrKind::floats, required},
               {"yes", AttrKind::ints, required},
               {"no", AttrKind::ints, required},
               {"missing_yes", AttrKind::ints, Attr(Ints{})},
               {"members", AttrKind::floats, Attr(Floats{})},
               {"roots", AttrKind::ints, required},
               {"leaf_targets", AttrKind::ints, required},
               {"leaf_weights", AttrKind::floats, required},
               {"base", AttrKind::floats, Attr(Floats{})},
               {"targets", AttrKind::integer, Attr(int64_t{1})},
               {"aggregate", AttrKind::text, Attr(std::string("sum"))},
               {"transform", AttrKind::text, Attr(std::string("none"))},
               {"to", AttrKind::dtype, Attr(DType::f32)}};
  row.constraints = {"C1: numbers in, floats out", "C2: x is [N,F]",
                     "C3: lists are complete, indices inside them, and no node reaches itself",
                     "C4: targets and base values fit", "C5: aggregate and transform exist"};
  row.infer = infer_trees;
  row.eval = eval_trees;
  row.flops = tree_flops;
  row.precision = Precision::accumulates;
  rows.push_back(std::move(row));
}

}  // namespace pelton::ir
