// SPDX-License-Identifier: Apache-2.0
// Support vector machines: a kernel between x[N,F] and the support vectors [S,F], weighted and shifted;
// classes C are told apart by P = C (C - 1) / 2 such machines, one a pair i < j, in the order of i, then j.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "onnx/import/helpers.h"
#include "onnx/import/ml.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

// [N,S]: LINEAR x.v, POLY (gamma x.v + c)^d, SIGMOID tanh(gamma x.v + c), RBF exp(-gamma |x - v|^2)
ValueId kernel(NodeContext& c, ValueId x, ValueId vectors) {
  std::string type = c.get_text("kernel_type", "LINEAR");
  Floats p = c.get_reals("kernel_params");
  p.resize(3, 0.0);
  auto k = [&](double v) { return c.b.scalar(DType::f32, v); };
  ValueId product = c.b.op("matmul", {x, vectors}, {{"transpose_b", true}});
  if (type == "LINEAR") return product;
  if (type == "RBF") {
    auto squares = [&](ValueId v, bool keep) {
      return reduce(c, "reduce_sum", c.b.op("square", {v}), {1}, keep);
    };
    ValueId distance = c.b.sub(c.b.add(squares(x, true), squares(vectors, false)), c.b.mul(product, k(2)));
    return c.b.op("exp", {c.b.mul(distance, k(-p[0]))});
  }
  ValueId shifted = c.b.add(c.b.mul(product, k(p[0])), k(p[1]));
  if (type == "POLY") return c.b.op("pow", {shifted, k(p[2])});
  if (type == "SIGMOID") return c.b.op("tanh", {shifted});
  c.refuse(ErrorCode::bad_format, cat("kernel_type \"", type, "\" is not known"));
}

ValueId rows_of(NodeContext& c) {
  ValueId x = as_f32(c, c.in(0));
  return c.b.rank(x) == 1 ? c.b.unsqueeze(x, {0}) : x;
}

ValueId matrix(NodeContext& c, int64_t rows, const Floats& v) {
  const auto count = static_cast<int64_t>(v.size());
  if (rows < 1 || count % rows)
    c.refuse(ErrorCode::bad_format, cat("has ", count, " numbers for ", rows, " rows"));
  return c.b.constant(from_doubles(DType::f32, {rows, count / rows}, v));
}

void svm_regressor(NodeContext& c) {
  ValueId x = rows_of(c);
  Floats weights = c.get_reals("coefficients"), rho = c.get_reals("rho"),
         vectors = c.get_reals("support_vectors");
  int64_t supports = c.get_int("n_supports", 0);
  auto column = [&](const Floats& v) {
    return c.b.constant(from_doubles(DType::f32, {static_cast<int64_t>(v.size()), 1}, v));
  };
  ValueId terms = x;
  if (supports > 0) terms = kernel(c, x, matrix(c, supports, vectors));
  ValueId y = c.b.matmul(terms, column(weights));
  if (!rho.empty()) y = c.b.add(y, c.b.scalar(DType::f32, rho[0]));
  if (c.get_int("one_class", 0)) {
    ValueId inside = c.b.op("gt", {y, c.b.like(y, 0)});
    y = c.b.select(inside, c.b.like(y, 1), c.b.like(y, -1));
  }
  c.out(0, post_transform(c, y));
}

struct Pairs {
  ValueId margins;  // [N,P], above zero for the first class of the pair
  ValueId votes;    // [N,C], pairs won
};

Pairs pairs_of(NodeContext& c, const Ints& each, const Floats& weights, const Floats& rho) {
  const size_t classes = each.size(), pairs = classes * (classes - 1) / 2;
  int64_t total = 0;
  std::vector<size_t> first;  // support vector of each class
  for (int64_t n : each) {
    if (n < 0 || n > static_cast<int64_t>(weights.size()))
      c.refuse(ErrorCode::bad_format, cat("has ", n, " support vectors of one class"));
    first.push_back(static_cast<size_t>(total));
    total += n;
  }
  const auto supports = static_cast<size_t>(total);
  if (rho.size() != pairs || weights.size() != (classes - 1) * supports)
    c.refuse(ErrorCode::bad_format,
             cat("has ", rho.size(), " shifts and ", weights.size(), " coefficients for ", classes,
                 " classes of ", supports, " support vectors"));
  Floats mix(supports * pairs), won(pairs * classes), lost(pairs * classes);
  size_t p = 0;
  for (size_t i = 0; i < classes; ++i)
    for (size_t j = i + 1; j < classes; ++j, ++p) {
      auto take = [&](size_t of, size_t row) {
        for (size_t v = first[of]; v < first[of] + static_cast<size_t>(each[of]); ++v)
          mix[v * pairs + p] = weights[row * supports + v];
      };
      take(i, j - 1);
      take(j, i);
      won[p * classes + i] = lost[p * classes + j] = 1;
    }
  ValueId terms = kernel(c, rows_of(c), matrix(c, total, c.get_reals("support_vectors")));
  Pairs out;
  out.margins = c.b.add(c.b.matmul(terms, matrix(c, total, mix)), row(c, rho));
  ValueId above = c.b.cast(c.b.op("gt", {out.margins, c.b.like(out.margins, 0)}), DType::f32);
  const auto rows = static_cast<int64_t>(pairs);
  out.votes = c.b.add(c.b.matmul(above, matrix(c, rows, won)),
                      c.b.matmul(c.b.sub(c.b.like(above, 1), above), matrix(c, rows, lost)));
  return out;
}

// Probabilities [N,C] of the classes from those of the pairs, r[i,j] = sigmoid(-(a margin + b)): the least
// squares of "the class is i, if it is i or j", by sweeps over the classes until a row's conditions hold to
// 0.005 / C.
ValueId coupled(NodeContext& c, ValueId margins, size_t classes) {
  const size_t pairs = classes * (classes - 1) / 2;
  const auto count = static_cast<int64_t>(classes);
  Floats a = c.get_reals("prob_a"), b = c.get_reals("prob_b");
  if (a.size() != pairs || b.size() != pairs)
    c.refuse(ErrorCode::bad_format,
             cat("has ", a.size(), " prob_a and ", b.size(), " prob_b for ", pairs, " pairs"));
  ValueId z = c.b.add(c.b.mul(margins, row(c, a)), row(c, b));
  ValueId r = c.b.op("clamp", {c.b.op("sigmoid", {c.b.op("neg", {z})}), c.b.scalar(DType::f32, 1e-7),
                               c.b.scalar(DType::f32, 1 - 1e-7)});
  // Q [N,C,C] = r as a table, times tables of zeros and ones: off the diagonal -r[i,j] r[j,i], on it the
  // squares of the others' claims.
  ValueId back = c.b.sub(c.b.like(r, 1), r);
  Floats cross(pairs * classes * classes), first = cross, second = cross;
  size_t p = 0;
  for (size_t i = 0; i < classes; ++i)
    for (size_t j = i + 1; j < classes; ++j, ++p) {
      auto at = [&](Floats& table, size_t m, size_t n, double v) {
        table[(p * classes + m) * classes + n] = v;
      };
      at(cross, i, j, -1);
      at(cross, j, i, -1);
      at(first, i, i, 1);   // r[j,i]^2
      at(second, j, j, 1);  // r[i,j]^2
    }
  const auto rows = static_cast<int64_t>(pairs);
  ValueId q = c.b.add(c.b.matmul(c.b.mul(r, back), matrix(c, rows, cross)),
                      c.b.add(c.b.matmul(c.b.op("square", {back}), matrix(c, rows, first)),
                              c.b.matmul(c.b.op("square", {r}), matrix(c, rows, second))));
  q = c.b.reshape(q, {c.b.shape(q).at(0), Dim(count), Dim(count)});
  ValueId start = c.b.broadcast_to(c.b.scalar(DType::f32, 1.0 / static_cast<double>(classes)),
                                   {c.b.shape(q).at(0), Dim(count)});

  ir::Graph body("sweep");
  body.symbols = c.b.graph().symbols;
  ValueId turn = body.add_input(ir::Type::tensor(DType::i64, {}));
  ValueId going = body.add_input(ir::Type::tensor(DType::boolean, {}));
  ValueId old = body.add_input(c.b.type(start)), table = body.add_input(c.b.type(q));
  body.inputs = {turn, going, old, table};
  ir::Builder k(body);
  k.set_name(c.b.node_name());
  auto pick = [&](ValueId v, int64_t t) {  // column or slab t along axis 1
    return k.op("gather", {v, k.constant(Tensor::scalar(t))}, {{"axis", int64_t{1}}});
  };
  ValueId slope = k.reshape(k.matmul(table, k.unsqueeze(old, {2})), k.shape(old));
  ValueId value = k.reduce("reduce_sum", k.mul(old, slope), {1}, true), now = old;
  ValueId worst = k.reduce("reduce_max", k.op("abs", {k.sub(slope, value)}), {1}, true);
  ValueId open = k.op("ge", {worst, k.like(worst, 0.005 / static_cast<double>(classes))});
  for (int64_t t = 0; t < count; ++t) {
    ValueId line = pick(table, t), own = k.unsqueeze(pick(line, t), {1}),
            at = k.unsqueeze(pick(slope, t), {1});
    ValueId step = k.div(k.sub(value, at), own), grown = k.add(k.like(step, 1), step);
    Floats unit(classes);
    unit[static_cast<size_t>(t)] = 1;
    ValueId here = k.constant(from_doubles(DType::f32, {1, count}, unit));
    value = k.div(k.add(value, k.mul(step, k.add(k.mul(step, own), k.mul(k.like(at, 2), at)))),
                  k.op("square", {grown}));
    now = k.div(k.add(now, k.mul(step, here)), grown);
    slope = k.div(k.add(slope, k.mul(step, line)), grown);
  }
  ValueId count_open = k.reduce("reduce_sum", k.cast(open, DType::f32), {0, 1}, false);
  body.outputs = {k.op("gt", {count_open, k.like(count_open, 0)}), k.select(open, now, old)};
  const int64_t most = std::max<int64_t>(100, count);
  return c.b.ops(
      "loop", {c.b.constant(Tensor::scalar(most)), ValueId{}, start, q},
      {{"body", ir::GraphPtr(std::make_shared<ir::Graph>(std::move(body)))}, {"carried", int64_t{1}}}, 1)[0];
}

void svm_classifier(NodeContext& c) {
  const size_t classes = std::max<size_t>(
      std::max(c.get_ints("classlabels_ints").size(), c.get_texts("classlabels_strings").size()), 1);
  Ints each = c.get_ints("vectors_per_class");
  Floats weights = c.get_reals("coefficients"), rho = c.get_reals("rho");
  ValueId scores, chosen_by;
  bool probabilities = false;
  if (std::accumulate(each.begin(), each.end(), int64_t{0}) > 0) {
    if (each.size() != classes || classes < 2)
      c.refuse(ErrorCode::bad_format,
               cat("has ", classes, " labels and support vectors of ", each.size(), " classes"));
    Pairs pairs = pairs_of(c, each, weights, rho);
    probabilities = c.has_attr("prob_a") && !c.get_reals("prob_a").empty();
    chosen_by = pairs.votes;
    scores = probabilities ? coupled(c, pairs.margins, classes) : pairs.margins;
  } else {  // one weighting of the inputs a class, all with the first shift
    if (rho.empty() || classes < 2 || (rho.size() == 1 && classes != 2))
      c.refuse(ErrorCode::unsupported_op,
               cat("has no support vectors, ", classes, " labels and ", rho.size(), " shifts"));
    scores = c.b.add(c.b.op("matmul", {rows_of(c), matrix(c, static_cast<int64_t>(classes), weights)},
                            {{"transpose_b", true}}),
                     c.b.scalar(DType::f32, rho[0]));
    chosen_by = scores;
  }
  if (classes == 2 && rho.size() == 1 && !probabilities &&
      std::all_of(weights.begin(), weights.end(), [](double w) { return w >= 0; })) {
    // Runtimes take margins of such weights for probabilities of the second class.
    ValueId most = c.b.reduce("reduce_max", chosen_by, {1}, true);
    ValueId second = c.b.constant(from_doubles(DType::f32, {1, 2}, {-INFINITY, INFINITY}));
    chosen_by = c.b.select(c.b.op("ge", {most, c.b.like(most, 0.5)}), second, chosen_by);
  }
  c.out(0, label_of(c, chosen_by));
  if (c.b.shape(scores).at(1) == Dim(1)) scores = concat(c, {c.b.op("neg", {scores}), scores}, 1);
  c.out(1, post_transform(c, scores));
}

// A list of maps from class to probability is, without the names, the matrix it is made from.
void zip_map(NodeContext& c) {
  c.out(0, c.in(0));
}

}  // namespace

void add_svm(ImportTable& table) {
  table.add(kMlDomain, "SVMRegressor", svm_regressor);
  table.add(kMlDomain, "SVMClassifier", svm_classifier);
  table.add(kMlDomain, "ZipMap", zip_map);
}

}  // namespace pelton::onnx
