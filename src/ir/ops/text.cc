// SPDX-License-Identifier: Apache-2.0
// Ops on strings and labels: rows and inference.
#include "ir/ops/text.h"

#include <algorithm>

#include "ir/ops/composite.h"
#include "ir/ops/exact_row.h"
#include "ir/ops/regex.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;
constexpr auto kType = ErrorCode::bad_type;

void require_strings(InferContext& c, size_t i) {
  c.require(c.dtype(i) == DType::string, kType, "C1",
            cat("needs strings as input ", i, ", not ", name(c.dtype(i))));
}

void infer_string_concat(InferContext& c) {
  require_strings(c, 0);
  require_strings(c, 1);
  c.output(0, DType::string, c.broadcast(c.shape(0), c.shape(1), "C2"));
}

// The pieces of each string on a new last axis, filled with empty strings, and how many there are.
void infer_string_split(InferContext& c) {
  require_strings(c, 0);
  Shape pieces = c.shape(0);
  pieces.push_back(c.fresh_size(0, pieces.size(), {0, INT64_MAX}));
  c.output(0, DType::string, pieces);
  c.output(1, DType::i64, c.shape(0));
}

// Strings [C] or [1,C] without stop words: at least one string is left, an empty one if need be.
void infer_string_normalizer(InferContext& c) {
  require_strings(c, 0);
  const Shape& x = c.shape(0);
  c.require(x.size() == 1 || (x.size() == 2 && equal(x[0], 1, c.ranges()) != Tri::no), kShape, "C2",
            cat("needs [C] or [1,C], not ", cat(x)));
  const std::string& to = c.node.get_text("case");
  c.require(to == "none" || to == "lower" || to == "upper", ErrorCode::usage, "C3",
            cat("has no case '", to, "'"));
  Shape out = x;
  out.back() = c.fresh_size(0, x.size() - 1, {1, std::max<int64_t>(1, x.back().range(c.ranges()).max)});
  c.output(0, DType::string, out);
}

void infer_regex(InferContext& c) {
  require_strings(c, 0);
  Regex(c.node.get_text("pattern"));  // refuses what it cannot read
  c.output(0, DType::boolean, c.shape(0));
}

// Counts of n-grams: x[C] or [N,C] -> f32 [columns] or [N, columns].
constexpr int64_t kMostColumns = int64_t{1} << 40;

void infer_tfidf(InferContext& c) {
  const Node& n = c.node;
  const Tensor& pool = n.get_tensor("pool");
  c.require(c.dtype(0) == DType::string || c.dtype(0) == DType::i32 || c.dtype(0) == DType::i64, kType, "C1",
            cat("takes strings, i32 or i64, not ", name(c.dtype(0))));
  c.require((pool.dtype() == DType::string) == (c.dtype(0) == DType::string) &&
                (pool.dtype() == DType::string || is_int(pool.dtype())),
            kType, "C1", cat("looks for ", name(c.dtype(0)), " in a pool of ", name(pool.dtype())));
  c.require(c.rank(0) == 1 || c.rank(0) == 2, kShape, "C2", cat("needs [C] or [N,C], not ", cat(c.shape(0))));
  const std::string& mode = n.get_text("mode");
  c.require(mode == "tf" || mode == "idf" || mode == "tfidf", ErrorCode::usage, "C3",
            cat("has no mode '", mode, "'"));
  int64_t least = n.get_int("min_length"), most = n.get_int("max_length"), skip = n.get_int("max_skip");
  c.require(least >= 1 && most >= least && skip >= 0, ErrorCode::usage, "C3",
            cat("has lengths ", least, " to ", most, " and skip ", skip));
  const Ints &starts = n.get_ints("starts"), &columns = n.get_ints("columns");
  c.require(!columns.empty(), ErrorCode::usage, "C4", "has no n-grams");
  int64_t width = 0, grams = 0;
  for (int64_t column : columns) {
    c.require(column >= 0 && column < kMostColumns, ErrorCode::usage, "C4", cat("has column ", column));
    width = std::max(width, column + 1);
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    int64_t end = i + 1 < starts.size() ? starts[i + 1] : pool.count();
    c.require(starts[i] >= 0 && end >= starts[i] && end <= pool.count(), ErrorCode::usage, "C4",
              cat("has starts ", starts, " in a pool of ", pool.count()));
    grams += (end - starts[i]) / static_cast<int64_t>(i + 1);
  }
  c.require(static_cast<int64_t>(columns.size()) == grams, ErrorCode::usage, "C4",
            cat("has ", columns.size(), " columns for ", grams, " n-grams"));
  const Floats& weights = n.get_floats("weights");
  c.require(weights.empty() || weights.size() == columns.size(), ErrorCode::usage, "C4",
            cat("has ", weights.size(), " weights for ", columns.size(), " columns"));
  Shape out{Dim(width)};
  if (c.rank(0) == 2) out.insert(out.begin(), c.shape(0)[0]);
  c.output(0, DType::f32, out);
}

// Each element that equals keys[i] becomes values[i], any other `otherwise`.
void infer_label_encoder(InferContext& c) {
  const Tensor &keys = c.node.get_tensor("keys"), &values = c.node.get_tensor("values");
  const Tensor& otherwise = c.node.get_tensor("otherwise");
  c.require(c.dtype(0) == keys.dtype(), kType, "C1",
            cat("looks for ", name(c.dtype(0)), " in keys of ", name(keys.dtype())));
  c.require(values.dtype() == otherwise.dtype() && otherwise.count() == 1, kType, "C1",
            cat("has values of ", values.str(), " and a default of ", otherwise.str()));
  c.require(keys.count() == values.count(), kShape, "C2",
            cat("has ", keys.count(), " keys and ", values.count(), " values"));
  c.output(0, values.dtype(), c.shape(0));
}

AttrDef text_def(std::string_view name, std::string value) {
  return {name, AttrKind::text, Attr(std::move(value))};
}
AttrDef int_def(std::string_view name, int64_t value) {
  return {name, AttrKind::integer, Attr(value)};
}

}  // namespace

void add_text(OpRows& rows) {
  constexpr std::string_view strings = "C1: strings";
  rows.push_back(exact_row(Family::text, "string_concat", 2, 2, {}, infer_string_concat, eval_string_concat,
                           {strings, "C2: shapes broadcast"}));
  rows.push_back(exact_row(Family::text, "string_split", 1, 1,
                           {text_def("delimiter", ""), int_def("max_splits", -1)}, infer_string_split,
                           eval_string_split, {strings}));
  rows.back().min_outputs = rows.back().max_outputs = 2;
  rows.push_back(exact_row(Family::text, "string_normalizer", 1, 1,
                           {text_def("case", "none"),
                            {"case_sensitive", AttrKind::boolean, Attr(false)},
                            {"stop_words", AttrKind::strings, Attr(Strings{})}},
                           infer_string_normalizer, eval_string_normalizer,
                           {strings, "C2: shape [C] or [1,C]", "C3: case is none, lower or upper"}));
  rows.push_back(exact_row(Family::text, "regex_full_match", 1, 1, {{"pattern", AttrKind::text, {}}},
                           infer_regex, eval_regex_full_match, {strings}));
  rows.push_back(exact_row(Family::text, "tfidf", 1, 1,
                           {{"pool", AttrKind::tensor, {}},
                            {"starts", AttrKind::ints, {}},
                            {"columns", AttrKind::ints, {}},
                            {"weights", AttrKind::floats, Attr(Floats{})},
                            {"mode", AttrKind::text, {}},
                            int_def("min_length", 1),
                            int_def("max_length", 1),
                            int_def("max_skip", 0)},
                           infer_tfidf, eval_tfidf,
                           {"C1: the pool has the type of x", "C2: shape [C] or [N,C]",
                            "C3: the mode and the lengths exist", "C4: the lists of n-grams fit"}));
  rows.push_back(exact_row(
      Family::text, "label_encoder", 1, 1,
      {{"keys", AttrKind::tensor, {}}, {"values", AttrKind::tensor, {}}, {"otherwise", AttrKind::tensor, {}}},
      infer_label_encoder, eval_label_encoder,
      {"C1: keys of the type of x, values of the type of the default", "C2: as many values as keys"}));
}

}  // namespace pelton::ir
