// SPDX-License-Identifier: Apache-2.0
// Support vector regression: a kernel between x[N,F] and the support vectors [S,F], weighted and shifted.
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

void svm_regressor(NodeContext& c) {
  ValueId x = as_f32(c, c.in(0));
  if (c.b.rank(x) == 1) x = c.b.unsqueeze(x, {0});
  Floats weights = c.get_reals("coefficients"), rho = c.get_reals("rho"),
         vectors = c.get_reals("support_vectors");
  int64_t supports = c.get_int("n_supports", 0);
  auto column = [&](const Floats& v) {
    return c.b.constant(from_doubles(DType::f32, {static_cast<int64_t>(v.size()), 1}, v));
  };
  ValueId terms = x;
  if (supports > 0) {
    auto count = static_cast<int64_t>(vectors.size());
    if (count % supports)
      c.refuse(ErrorCode::bad_format, cat("has ", count, " numbers for ", supports, " support vectors"));
    terms = kernel(c, x, c.b.constant(from_doubles(DType::f32, {supports, count / supports}, vectors)));
  }
  ValueId y = c.b.matmul(terms, column(weights));
  if (!rho.empty()) y = c.b.add(y, c.b.scalar(DType::f32, rho[0]));
  if (c.get_int("one_class", 0)) {
    ValueId inside = c.b.op("gt", {y, c.b.like(y, 0)});
    y = c.b.select(inside, c.b.like(y, 1), c.b.like(y, -1));
  }
  c.out(0, post_transform(c, y));
}

// A list of maps from class to probability is, without the names, the matrix it is made from.
void zip_map(NodeContext& c) {
  c.out(0, c.in(0));
}

}  // namespace

void add_svm(ImportTable& table) {
  table.add(kMlDomain, "SVMRegressor", svm_regressor);
  table.add(kMlDomain, "ZipMap", zip_map);
}

}  // namespace pelton::onnx
