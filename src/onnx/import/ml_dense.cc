// SPDX-License-Identifier: Apache-2.0
// ai.onnx.ml ops that are dense arithmetic: scalers, linear models, normalisers, feature handling.
#include <cmath>

#include "onnx/import/helpers.h"
#include "onnx/import/ml.h"
#include "onnx/import/table.h"

namespace pelton::onnx {

ValueId row(NodeContext& c, const Floats& v) {
  return c.b.constant(from_doubles(DType::f32, {static_cast<int64_t>(v.size())}, v));
}
ValueId as_f32(NodeContext& c, ValueId x) {
  return c.b.cast(x, DType::f32);
}

ValueId post_transform(NodeContext& c, ValueId scores) {
  std::string kind = c.get_text("post_transform", "NONE");
  if (kind == "NONE") return scores;
  if (kind == "LOGISTIC") return c.b.op("sigmoid", {scores});
  if (kind == "SOFTMAX") return c.b.op("softmax", {scores}, {{"axis", int64_t{-1}}});
  if (kind == "SOFTMAX_ZERO") {  // zeros stay zero and do not count
    ValueId used = c.b.op("ne", {scores, c.b.like(scores, 0)});
    ValueId low = c.b.select(used, scores, c.b.like(scores, -INFINITY));
    ValueId p = c.b.op("softmax", {low}, {{"axis", int64_t{-1}}});
    return c.b.select(used, p, c.b.like(p, 0));
  }
  c.refuse(ErrorCode::unsupported_op, cat("post_transform \"", kind, "\" is not supported"));
}

ValueId label_of(NodeContext& c, ValueId scores) {
  ValueId best = c.b.op("arg_max", {scores}, {{"axis", int64_t{1}}});
  if (Strings texts = c.get_texts("classlabels_strings"); !texts.empty()) {
    auto n = static_cast<int64_t>(texts.size());
    return c.b.op("gather", {c.b.constant(Tensor::of_strings({n}, texts)), best}, {{"axis", int64_t{0}}});
  }
  Ints labels = c.get_ints(c.has_attr("classlabels_int64s") ? "classlabels_int64s" : "classlabels_ints");
  if (labels.empty()) return best;
  return c.b.op("gather", {c.b.ints(labels), best}, {{"axis", int64_t{0}}});
}

namespace {

void scaler(NodeContext& c) {
  ValueId x = as_f32(c, c.in(0));
  Floats offset = c.get_reals("offset"), scale = c.get_reals("scale");
  if (!offset.empty()) x = c.b.sub(x, row(c, offset));
  if (!scale.empty()) x = c.b.mul(x, row(c, scale));
  c.out(0, x);
}

void binarizer(NodeContext& c) {
  ValueId x = c.in(0);
  c.out(0, c.b.cast(c.b.op("gt", {x, c.b.like(x, c.get_real("threshold", 0))}), c.b.dtype(x)));
}

void normalizer(NodeContext& c) {
  ValueId x = as_f32(c, c.in(0));
  std::string norm = c.get_text("norm", "MAX");
  Ints last{c.b.rank(x) - 1};
  ValueId by;
  if (norm == "MAX")
    by = reduce(c, "reduce_max", x, last, true);
  else if (norm == "L1")
    by = reduce(c, "reduce_sum", c.b.op("abs", {x}), last, true);
  else if (norm == "L2")
    by = c.b.op("sqrt", {reduce(c, "reduce_sum", c.b.op("square", {x}), last, true)});
  else
    c.refuse(ErrorCode::bad_format, cat("norm \"", norm, "\" is not MAX, L1 or L2"));
  ValueId zero = c.b.op("eq", {by, c.b.like(by, 0)});
  c.out(0, c.b.div(x, c.b.select(zero, c.b.like(by, 1), by)));
}

void imputer(NodeContext& c) {
  ValueId x = c.in(0), missing, value;
  if (is_float(c.b.dtype(x))) {
    double marker = c.get_real("replaced_value_float", 0);
    missing = std::isnan(marker) ? c.b.op("is_nan", {x}) : c.b.op("eq", {x, c.b.like(x, marker)});
    value = c.b.cast(row(c, c.get_reals("imputed_value_floats")), c.b.dtype(x));
  } else {
    missing = c.b.op("eq", {x, c.b.like(x, static_cast<double>(c.get_int("replaced_value_int64", 0)))});
    value = c.b.cast(c.b.ints(c.get_ints("imputed_value_int64s")), c.b.dtype(x));
  }
  if (c.b.shape(value).at(0) == Dim(1)) value = c.b.reshape(value, {});
  c.out(0, c.b.select(missing, value, x));
}

void array_feature_extractor(NodeContext& c) {
  ValueId x = c.in(0), at = c.b.cast(c.in(1), DType::i64);
  ValueId y =
      c.b.op("gather", {x, c.b.reshape(at, {element_count(c.b.shape(at))})}, {{"axis", c.b.rank(x) - 1}});
  c.out(0, c.b.rank(y) == 1 ? c.b.unsqueeze(y, {0}) : y);
}

void feature_vectorizer(NodeContext& c) {
  std::vector<ValueId> parts;
  for (ValueId x : c.all_inputs())
    parts.push_back(as_f32(c, c.b.rank(x) == 1 ? c.b.unsqueeze(x, {1}) : flatten_at(c, x, 1)));
  c.out(0, concat(c, parts, 1));
}

void one_hot_encoder(NodeContext& c) {
  ValueId x = c.in(0);
  bool texts = c.b.dtype(x) == DType::string;
  Strings names = c.get_texts("cats_strings");
  Ints numbers = c.get_ints("cats_int64s");
  if (!c.get_int("zeros", 1))
    c.refuse(ErrorCode::unsupported_op, "refusing unknown categories (zeros = 0) is not supported");
  ValueId categories = texts ? c.b.constant(Tensor::of_strings({static_cast<int64_t>(names.size())}, names))
                             : c.b.ints(numbers);
  ValueId wide = c.b.unsqueeze(texts ? x : c.b.cast(x, DType::i64), {c.b.rank(x)});
  c.out(0, c.b.cast(c.b.op("eq", {wide, categories}), DType::f32));
}

// x[N,F] against coefficients [targets, F]
ValueId linear_scores(NodeContext& c, int64_t targets) {
  ValueId x = as_f32(c, c.in(0));
  if (c.b.rank(x) == 1) x = c.b.unsqueeze(x, {0});
  Floats w = c.get_reals("coefficients"), bias = c.get_reals("intercepts");
  auto n = static_cast<int64_t>(w.size());
  if (targets < 1 || n % targets)
    c.refuse(ErrorCode::bad_format, cat("has ", n, " coefficients for ", targets, " targets"));
  ValueId y = c.b.op("matmul", {x, c.b.constant(from_doubles(DType::f32, {targets, n / targets}, w))},
                     {{"transpose_b", true}});
  return bias.empty() ? y : c.b.add(y, row(c, bias));
}
void linear_regressor(NodeContext& c) {
  c.out(0, post_transform(c, linear_scores(c, c.get_int("targets", 1))));
}

void linear_classifier(NodeContext& c) {
  size_t labels = std::max(c.get_ints("classlabels_ints").size(), c.get_texts("classlabels_strings").size());
  Floats bias = c.get_reals("intercepts");
  auto rows = static_cast<int64_t>(bias.empty() ? labels : bias.size());
  ValueId scores = linear_scores(c, rows);
  if (rows == 1 && labels == 2) {  // one margin stands for two classes
    ValueId p = c.get_text("post_transform", "NONE") == "LOGISTIC" ? c.b.op("sigmoid", {scores}) : scores;
    bool probability = c.get_text("post_transform", "NONE") == "LOGISTIC";
    ValueId other = probability ? c.b.sub(c.b.like(p, 1), p) : c.b.op("neg", {p});
    ValueId both = concat(c, {other, p}, 1);
    c.out(0, label_of(c, both));
    return c.out(1, both);
  }
  c.out(0, label_of(c, scores));
  c.out(1, post_transform(c, scores));
}

}  // namespace

void add_ml_dense(ImportTable& table) {
  add_svm(table);
  table.add(kMlDomain, "Scaler", scaler);
  table.add(kMlDomain, "Binarizer", binarizer);
  table.add(kMlDomain, "Normalizer", normalizer);
  table.add(kMlDomain, "Imputer", imputer);
  table.add(kMlDomain, "ArrayFeatureExtractor", array_feature_extractor);
  table.add(kMlDomain, "FeatureVectorizer", feature_vectorizer);
  table.add(kMlDomain, "OneHotEncoder", one_hot_encoder);
  table.add(kMlDomain, "LinearRegressor", linear_regressor);
  table.add(kMlDomain, "LinearClassifier", linear_classifier);
}

}  // namespace pelton::onnx
