// SPDX-License-Identifier: Apache-2.0
// Text, n-grams and label tables.
#include <cmath>

#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

void string_concat(NodeContext& c) {
  ValueId left = c.in(0), right = c.in(1);
  c.out(0, c.b.op("string_concat", {left, right}));
}

void string_split(NodeContext& c) {
  auto y =
      c.b.ops("string_split", {c.in(0)},
              {{"delimiter", c.get_text("delimiter", "")}, {"max_splits", c.get_int("maxsplit", -1)}}, 2);
  c.out(0, y[0]);
  c.out(1, y[1]);
}

void string_normalizer(NodeContext& c) {
  std::string change = c.get_text("case_change_action", "NONE");
  for (char& k : change) k = static_cast<char>(k >= 'A' && k <= 'Z' ? k + 32 : k);
  c.out(0, c.b.op("string_normalizer", {c.in(0)},
                  {{"case", change},
                   {"stop_words", c.get_texts("stopwords")},
                   {"case_sensitive", c.get_int("is_case_sensitive", 0) != 0}}));
}

void regex_full_match(NodeContext& c) {
  c.out(0, c.b.op("regex_full_match", {c.in(0)}, {{"pattern", c.get_text("pattern", "")}}));
}

void tf_idf(NodeContext& c) {
  std::string mode = c.get_text("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF")
    c.refuse(ErrorCode::bad_format, cat("mode \"", mode, "\" is not TF, IDF or TFIDF"));
  Tensor pool;
  if (c.has_attr("pool_strings")) {
    Strings words = c.get_texts("pool_strings");
    pool = Tensor::of_strings({static_cast<int64_t>(words.size())}, words);
  } else {
    Ints numbers = c.get_ints("pool_int64s");
    pool = Tensor::from<int64_t>({static_cast<int64_t>(numbers.size())}, numbers);
  }
  c.out(0, c.b.op("tfidf", {c.in(0)},
                  {{"pool", pool},
                   {"starts", c.get_ints("ngram_counts")},
                   {"columns", c.get_ints("ngram_indexes")},
                   {"weights", c.get_reals("weights")},
                   {"mode", std::string(mode == "TF"    ? "tf"
                                        : mode == "IDF" ? "idf"
                                                        : "tfidf")},
                   {"min_length", c.need_int("min_gram_length")},
                   {"max_length", c.need_int("max_gram_length")},
                   {"max_skip", c.need_int("max_skip_count")}}));
}

// One side of a table, from the list attribute that is present.
Tensor list_of(NodeContext& c, std::string_view base) {
  auto named = [&](std::string_view kind) { return cat(base, "_", kind); };
  if (std::string n = named("strings"); c.has_attr(n)) {
    Strings v = c.get_texts(n);
    return Tensor::of_strings({static_cast<int64_t>(v.size())}, v);
  }
  if (std::string n = named("int64s"); c.has_attr(n)) {
    Ints v = c.get_ints(n);
    return Tensor::from<int64_t>({static_cast<int64_t>(v.size())}, v);
  }
  if (std::string n = named("floats"); c.has_attr(n)) {
    Floats v = c.get_reals(n);
    return from_doubles(DType::f32, {static_cast<int64_t>(v.size())}, v);
  }
  return c.get_tensor(named("tensor"));
}

Tensor default_of(NodeContext& c, DType t) {
  if (c.has_attr("default_tensor")) return c.get_tensor("default_tensor").reshaped({1});
  if (t == DType::string)
    return Tensor::of_strings({1}, std::vector<std::string>(1, c.get_text("default_string", "_Unused")));
  if (is_float(t)) return Tensor::full(t, {1}, c.get_real("default_float", -0.0));
  return from_ints(t, {1}, {c.get_int("default_int64", -1)});
}

void label_encoder(NodeContext& c) {
  if (c.opset < 2) {  // texts to their places and back
    Strings words = c.get_texts("classes_strings");
    auto n = static_cast<int64_t>(words.size());
    Tensor texts = Tensor::of_strings({n}, words), places = Tensor(DType::i64, {n});
    for (int64_t i = 0; i < n; ++i) places.set_int(i, i);
    bool forward = c.b.dtype(c.in(0)) == DType::string;
    Tensor other = forward ? from_ints(DType::i64, {1}, {c.get_int("default_int64", -1)})
                           : Tensor::of_strings(
                                 {1}, std::vector<std::string>(1, c.get_text("default_string", "_Unused")));
    return c.out(0, c.b.op("label_encoder", {c.in(0)},
                           {{"keys", forward ? texts : places},
                            {"values", forward ? places : texts},
                            {"otherwise", other}}));
  }
  Tensor keys = list_of(c, "keys"), values = list_of(c, "values");
  if (!keys.defined() || !values.defined()) c.refuse(ErrorCode::bad_format, "has no keys or no values");
  c.out(0, c.b.op("label_encoder", {c.in(0)},
                  {{"keys", keys}, {"values", values}, {"otherwise", default_of(c, values.dtype())}}));
}

void category_mapper(NodeContext& c) {
  Strings words = c.get_texts("cats_strings");
  Ints numbers = c.get_ints("cats_int64s");
  Tensor texts = Tensor::of_strings({static_cast<int64_t>(words.size())}, words);
  Tensor places = Tensor::from<int64_t>({static_cast<int64_t>(numbers.size())}, numbers);
  bool forward = c.b.dtype(c.in(0)) == DType::string;
  Tensor other =
      forward ? from_ints(DType::i64, {1}, {c.get_int("default_int64", -1)})
              : Tensor::of_strings({1}, std::vector<std::string>(1, c.get_text("default_string", "_Unused")));
  c.out(0, c.b.op("label_encoder", {c.in(0)},
                  {{"keys", forward ? texts : places},
                   {"values", forward ? places : texts},
                   {"otherwise", other}}));
}

}  // namespace

void add_text(ImportTable& table) {
  table.add("StringConcat", string_concat);
  table.add("StringSplit", string_split);
  table.add("StringNormalizer", string_normalizer);
  table.add("RegexFullMatch", regex_full_match);
  table.add("TfIdfVectorizer", tf_idf);
  table.add(kMlDomain, "LabelEncoder", label_encoder);
  table.add(kMlDomain, "CategoryMapper", category_mapper);
}

}  // namespace pelton::onnx
