// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: rows, inference and activations. Evaluation in rnn_eval.cc, decomposition in
// rnn_decompose.cc.
#include "ir/ops/rnn.h"

#include <cmath>

#include "ir/ops/composite.h"
#include "ir/ops/scalar_math.h"

namespace pelton::ir {
namespace {

struct ActivationDef {
  std::string_view name;
  bool takes_alpha, takes_beta;
  double alpha, beta;  // defaults
};
constexpr ActivationDef kActivations[] = {
    {"relu", false, false, 0, 0},        {"tanh", false, false, 0, 0},
    {"sigmoid", false, false, 0, 0},     {"affine", true, true, 1, 0},
    {"leakyrelu", true, false, 0.01, 0}, {"thresholdedrelu", true, false, 1, 0},
    {"scaledtanh", true, true, 1, 1},    {"hardsigmoid", true, true, 0.2, 0.5},
    {"elu", true, false, 1, 0},          {"softsign", false, false, 0, 0},
    {"softplus", false, false, 0, 0},
};

std::string lower(std::string s) {
  for (char& c : s)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return s;
}

Strings default_activations(const Node& n) {
  if (n.is("rnn")) return {"tanh"};
  if (n.is("gru")) return {"sigmoid", "tanh"};
  return {"sigmoid", "tanh", "tanh"};
}

}  // namespace

size_t rnn_directions(const Node& n) {
  return n.get_text("direction") == "bidirectional" ? 2 : 1;
}
size_t rnn_gates(const Node& n) {
  return n.is("rnn") ? 1 : n.is("gru") ? 3 : 4;
}

std::vector<RnnActivation> rnn_activations(const Node& n, size_t directions) {
  Strings names = n.get_strings("activations");
  if (names.empty())
    for (size_t d = 0; d < directions; ++d)
      for (const std::string& s : default_activations(n)) names.push_back(s);
  const Floats &alphas = n.get_floats("alpha"), &betas = n.get_floats("beta");
  size_t next_alpha = 0, next_beta = 0;
  std::vector<RnnActivation> out;
  for (const std::string& original : names) {
    std::string name = lower(original);
    const ActivationDef* def = nullptr;
    for (const ActivationDef& d : kActivations)
      if (d.name == name) def = &d;
    if (!def) fail(ErrorCode::bad_type, cat(n.op->name, " has no activation '", original, "'"));
    RnnActivation a{name, def->alpha, def->beta};
    if (def->takes_alpha && next_alpha < alphas.size()) a.alpha = alphas[next_alpha++];
    if (def->takes_beta && next_beta < betas.size()) a.beta = betas[next_beta++];
    out.push_back(std::move(a));
  }
  return out;
}

double RnnActivation::operator()(double x) const {
  if (name == "relu") return std::max(x, 0.0);
  if (name == "tanh") return std::tanh(x);
  if (name == "sigmoid") return sigmoid(x);
  if (name == "affine") return alpha * x + beta;
  if (name == "leakyrelu") return x < 0 ? alpha * x : x;
  if (name == "thresholdedrelu") return x > alpha ? x : 0;
  if (name == "scaledtanh") return alpha * std::tanh(beta * x);
  if (name == "hardsigmoid") return std::min(1.0, std::max(0.0, alpha * x + beta));
  if (name == "elu") return x < 0 ? alpha * std::expm1(x) : x;
  if (name == "softsign") return x / (1 + std::fabs(x));
  return softplus(x);
}

ValueId apply(Builder& b, const RnnActivation& a, ValueId x) {
  auto line = [&](double scale, double shift) { return b.add(b.mul(x, b.like(x, scale)), b.like(x, shift)); };
  if (a.name == "affine") return line(a.alpha, a.beta);
  if (a.name == "leakyrelu") return b.op("leaky_relu", {x}, {{"alpha", a.alpha}});
  if (a.name == "thresholdedrelu") return b.select(b.op("gt", {x, b.like(x, a.alpha)}), x, b.like(x, 0));
  if (a.name == "scaledtanh") return b.mul(b.op("tanh", {b.mul(x, b.like(x, a.beta))}), b.like(x, a.alpha));
  if (a.name == "hardsigmoid") return b.op("hard_sigmoid", {x}, {{"alpha", a.alpha}, {"beta", a.beta}});
  if (a.name == "elu") return b.op("elu", {x}, {{"alpha", a.alpha}});
  return b.op(a.name, {x});
}

namespace {

constexpr auto kShape = ErrorCode::bad_shape;

// Input i is [dims...] of x's type.
void require_operand(InferContext& c, size_t i, const Shape& dims) {
  if (!c.has(i)) return;
  require_same_type(c, 0, i, "C1");
  c.require(c.shape(i).size() == dims.size(), kShape, "C2",
            cat("needs input ", i, " of shape ", cat(dims), ", not ", cat(c.shape(i))));
  for (size_t d = 0; d < dims.size(); ++d) c.same(c.shape(i)[d], dims[d], "C2");
}

void infer_rnn(InferContext& c) {
  namespace in = rnn_input;
  require_float(c, 0, "C1");
  const std::string& direction = c.node.get_text("direction");
  c.require(direction == "forward" || direction == "reverse" || direction == "bidirectional",
            ErrorCode::usage, "C3", cat("has no direction '", direction, "'"));
  c.require(c.rank(in::x) == 3, kShape, "C2", cat("needs x[L,N,I], not ", cat(c.shape(in::x))));
  c.require(c.rank(in::r) == 3, kShape, "C2", cat("needs r[D,G*H,H], not ", cat(c.shape(in::r))));
  auto directions = static_cast<int64_t>(rnn_directions(c.node)),
       gates = static_cast<int64_t>(rnn_gates(c.node));
  int64_t attr = c.node.get_int("hidden");
  Dim hidden = attr > 0 ? Dim(attr) : c.shape(in::r)[2];
  Dim steps = c.shape(in::x)[0], batch = c.shape(in::x)[1], input = c.shape(in::x)[2], d = directions;
  require_operand(c, in::w, {d, hidden * gates, input});
  require_operand(c, in::r, {d, hidden * gates, hidden});
  require_operand(c, in::b, {d, hidden * gates * 2});
  require_operand(c, in::h0, {d, batch, hidden});
  require_operand(c, in::c0, {d, batch, hidden});
  require_operand(c, in::p, {d, hidden * 3});
  if (c.has(in::lengths)) {
    c.require(is_int(c.dtype(in::lengths)), ErrorCode::bad_type, "C1", "needs integer lengths");
    c.require(c.rank(in::lengths) == 1, kShape, "C2",
              cat("needs lengths[N], not ", cat(c.shape(in::lengths))));
    c.same(c.shape(in::lengths)[0], batch, "C2");
  }
  size_t wanted = default_activations(c.node).size() * rnn_directions(c.node);
  c.require(rnn_activations(c.node, rnn_directions(c.node)).size() == wanted, ErrorCode::usage, "C4",
            cat("needs ", wanted, " activations, not ", c.node.get_strings("activations").size()));
  c.output(0, c.dtype(0), {steps, d, batch, hidden});
  for (size_t i : {1, 2}) c.output(i, c.dtype(0), {d, batch, hidden});
}

double rnn_flops(const Graph&, const Node& n, const std::vector<Dims>& in, const std::vector<Dims>&) {
  double rows = static_cast<double>(in[rnn_input::x][0]) * static_cast<double>(in[rnn_input::x][1]);
  double weights = static_cast<double>(element_count(in[rnn_input::w]) + element_count(in[rnn_input::r]));
  double hidden = static_cast<double>(in[rnn_input::r][2]) * static_cast<double>(rnn_directions(n));
  return rows * (2 * weights + 4 * static_cast<double>(rnn_gates(n)) * hidden);
}

OpDef recurrent(std::string_view name, int max_inputs, int max_outputs, void (*eval)(EvalContext&)) {
  OpDef row;
  row.name = name;
  row.family = Family::composite;
  row.min_inputs = 3;
  row.max_inputs = max_inputs;
  row.max_outputs = max_outputs;
  row.attrs = {{"hidden", AttrKind::integer, Attr(int64_t{0})},
               {"direction", AttrKind::text, Attr(std::string("forward"))},
               {"activations", AttrKind::strings, Attr(Strings{})},
               {"alpha", AttrKind::floats, Attr(Floats{})},
               {"beta", AttrKind::floats, Attr(Floats{})},
               {"clip", AttrKind::real, Attr(0.0)}};
  row.constraints = {"C1: floats of one type; lengths are integers",
                     "C2: shapes fit x[L,N,I], D directions, G gates of H",
                     "C3: direction is forward, reverse or bidirectional",
                     "C4: as many activations as gates need in each direction"};
  row.infer = infer_rnn;
  row.eval = eval;
  row.flops = rnn_flops;
  row.decompose = decompose_rnn;
  row.precision = Precision::accumulates;
  return row;
}

}  // namespace

void add_rnn(OpRows& rows) {
  rows.push_back(recurrent("rnn", 6, 2, eval_rnn));
  rows.push_back(recurrent("gru", 6, 2, eval_gru));
  rows.back().attrs.push_back({"linear_before_reset", AttrKind::boolean, Attr(false)});
  rows.push_back(recurrent("lstm", 8, 3, eval_lstm));
  rows.back().attrs.push_back({"input_forget", AttrKind::boolean, Attr(false)});
}

}  // namespace pelton::ir
