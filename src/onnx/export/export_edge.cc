// SPDX-License-Identifier: Apache-2.0
// Random values, text, label tables and trees.
#include <algorithm>
#include <limits>
#include <tuple>

#include "ir/op.h"
#include "onnx/export/export_context.h"

namespace pelton::onnx {
namespace {

OnnxAttr seed_of(ExportContext& c) {
  return attr("seed", static_cast<double>(c.node.get_int("seed")));
}

// Sizes are attributes of ONNX's generators; where they depend on the input, a tensor of that shape is drawn
// like.
void generator(ExportContext& c, std::string_view type, std::vector<OnnxAttr> attrs) {
  const Shape& dims = c.node.get_dims("dims");
  attrs.push_back(seed_of(c));
  attrs.push_back(attr("dtype", c.node.get_dtype("dtype")));
  if (auto known = as_dims(dims)) {
    attrs.push_back(attr("shape", *known));
    c.results = {c.w.op(type, {}, attrs)};
    return;
  }
  Name like = c.w.op("Expand", {c.w.scalar(DType::f32, 0), c.sizes(dims)});
  c.results = {c.w.op(cat(type, "Like"), {like}, attrs)};
}
void random_uniform(ExportContext& c) {
  generator(c, "RandomUniform", {attr("low", c.node.get_real("low")), attr("high", c.node.get_real("high"))});
}
void random_normal(ExportContext& c) {
  generator(c, "RandomNormal",
            {attr("mean", c.node.get_real("mean")), attr("scale", c.node.get_real("scale"))});
}
void bernoulli(ExportContext& c) {
  c.results = {c.w.op("Bernoulli", {c.in(0)}, {attr("dtype", c.node.get_dtype("dtype")), seed_of(c)})};
}
void multinomial(ExportContext& c) {
  c.results = {c.w.op("Multinomial", {c.in(0)},
                      {attr("sample_size", c.node.get_int("samples")),
                       attr("dtype", c.node.get_dtype("dtype")), seed_of(c)})};
}
void dropout(ExportContext& c) {
  c.results = c.w.ops("Dropout", {c.in(0), c.reshape(c.in(1), {}), c.w.constant(Tensor::scalar(true))},
                      {attr("seed", c.node.get_int("seed"))}, c.node.outputs.size());
}

std::string upper(std::string s) {
  for (char& k : s) k = static_cast<char>(k >= 'a' && k <= 'z' ? k - 32 : k);
  return s;
}
void string_concat(ExportContext& c) {
  c.results = {c.w.op("StringConcat", c.all_inputs())};
}
void string_split(ExportContext& c) {
  std::vector<OnnxAttr> attrs{attr("delimiter", c.node.get_text("delimiter"))};
  if (int64_t limit = c.node.get_int("max_splits"); limit >= 0) attrs.push_back(attr("maxsplit", limit));
  c.results = c.w.ops("StringSplit", {c.in(0)}, attrs, 2);
}
void string_normalizer(ExportContext& c) {
  std::vector<OnnxAttr> attrs{attr("case_change_action", upper(c.node.get_text("case"))),
                              attr("is_case_sensitive", c.node.get_bool("case_sensitive"))};
  if (!c.node.get_strings("stop_words").empty())
    attrs.push_back(attr("stopwords", c.node.get_strings("stop_words")));
  c.results = {c.w.op("StringNormalizer", {c.in(0)}, attrs)};
}
void regex_full_match(ExportContext& c) {
  c.results = {c.w.op("RegexFullMatch", {c.in(0)}, {attr("pattern", c.node.get_text("pattern"))})};
}
void tfidf(ExportContext& c) {
  const Tensor& pool = c.node.get_tensor("pool");
  std::vector<OnnxAttr> attrs{attr("mode", upper(c.node.get_text("mode"))),
                              attr("ngram_counts", c.node.get_ints("starts")),
                              attr("ngram_indexes", c.node.get_ints("columns")),
                              attr("min_gram_length", c.node.get_int("min_length")),
                              attr("max_gram_length", c.node.get_int("max_length")),
                              attr("max_skip_count", c.node.get_int("max_skip"))};
  if (!c.node.get_floats("weights").empty()) attrs.push_back(attr("weights", c.node.get_floats("weights")));
  attrs.push_back(pool.dtype() == DType::string ? attr("pool_strings", pool.strings())
                                                : attr("pool_int64s", to_ints(pool)));
  c.results = {c.w.op("TfIdfVectorizer", {c.in(0)}, attrs)};
}
void label_encoder(ExportContext& c) {
  c.results = {c.w.ml_op(
      "LabelEncoder", {c.in(0)},
      {attr("keys_tensor", c.node.get_tensor("keys")), attr("values_tensor", c.node.get_tensor("values")),
       attr("default_tensor", c.node.get_tensor("otherwise"))})};
}

// Leaves are nodes of their own in the IR and entries of a second list in ONNX, one target each.
void tree_ensemble(ExportContext& c) {
  constexpr int64_t kMember = 6, kLeaf = 7;
  const ir::Ints &modes = c.node.get_ints("modes"), &yes = c.node.get_ints("yes"),
                 &no = c.node.get_ints("no"), &features = c.node.get_ints("features"),
                 &missing = c.node.get_ints("missing_yes");
  const ir::Floats& splits = c.node.get_floats("splits");
  const ir::Floats& base = c.node.get_floats("base");
  const std::string& transform = c.node.get_text("transform");
  if (!base.empty() && transform != "none" && transform != "softmax" && transform != "logistic")
    c.refuse(cat("trees with base values and the transform ", transform));
  size_t n = modes.size();
  ir::Ints place(n), branch_modes, branch_features, yes_ids, no_ids, yes_leaf, no_leaf, tracks, targets,
      roots;
  std::vector<double> branch_splits, weights, members;
  int64_t branches = 0;
  for (size_t i = 0; i < n; ++i) {
    if (modes[i] != kLeaf) {
      place[i] = branches++;
      continue;
    }
    if (no[i] != 1) c.refuse("a leaf with other than one vote");
    place[i] = static_cast<int64_t>(targets.size());
    targets.push_back(c.node.get_ints("leaf_targets")[static_cast<size_t>(yes[i])]);
    weights.push_back(c.node.get_floats("leaf_weights")[static_cast<size_t>(yes[i])]);
  }
  auto leaf = [&](int64_t i) { return static_cast<int64_t>(modes[static_cast<size_t>(i)] == kLeaf); };
  const ir::Floats& sets = c.node.get_floats("members");
  for (size_t i = 0; i < n; ++i) {
    if (modes[i] == kLeaf) continue;
    branch_modes.push_back(modes[i]);
    branch_features.push_back(features[i]);
    branch_splits.push_back(modes[i] == kMember ? 0 : splits[i]);
    if (modes[i] == kMember) {
      for (auto k = static_cast<size_t>(splits[i]); k < sets.size() && sets[k] == sets[k]; ++k)
        members.push_back(sets[k]);
      members.push_back(std::numeric_limits<double>::quiet_NaN());
    }
    for (auto [from, ids, leaves] :
         {std::tuple(&yes, &yes_ids, &yes_leaf), std::tuple(&no, &no_ids, &no_leaf)}) {
      ids->push_back(place[static_cast<size_t>((*from)[i])]);
      leaves->push_back(leaf((*from)[i]));
    }
    if (!missing.empty()) tracks.push_back(missing[i]);
  }
  for (int64_t root : c.node.get_ints("roots")) {
    if (leaf(root)) c.refuse("a tree that is a single leaf");
    roots.push_back(place[static_cast<size_t>(root)]);
  }
  DType t = c.dtype(0);
  auto list = [&](DType type, const std::vector<double>& v) {
    return from_doubles(type, {static_cast<int64_t>(v.size())}, v);
  };
  static constexpr std::string_view aggregates[] = {"average", "sum", "min", "max"};
  static constexpr std::string_view transforms[] = {"none", "softmax", "logistic", "softmax_zero", "probit"};
  auto index = [](const auto& names, std::string_view name) {
    return int64_t{std::find(std::begin(names), std::end(names), name) - names};
  };
  std::vector<OnnxAttr> attrs{attr("nodes_modes", from_ints(DType::u8, {branches}, branch_modes)),
                              attr("nodes_featureids", branch_features),
                              attr("nodes_splits", list(t, branch_splits)),
                              attr("nodes_truenodeids", yes_ids),
                              attr("nodes_falsenodeids", no_ids),
                              attr("nodes_trueleafs", yes_leaf),
                              attr("nodes_falseleafs", no_leaf),
                              attr("leaf_targetids", targets),
                              attr("leaf_weights", list(t, weights)),
                              attr("tree_roots", roots),
                              attr("n_targets", c.node.get_int("targets")),
                              attr("aggregate_function", index(aggregates, c.node.get_text("aggregate"))),
                              attr("post_transform", index(transforms, base.empty() ? transform : "none"))};
  if (!tracks.empty()) attrs.push_back(attr("nodes_missing_value_tracks_true", tracks));
  if (!members.empty()) attrs.push_back(attr("membership_values", list(t, members)));
  Name y = c.w.ml_op("TreeEnsemble", {c.in(0)}, attrs);
  if (!base.empty()) y = c.w.op("Add", {y, c.w.constant(list(t, base))});
  if (!base.empty() && transform == "softmax") y = c.w.op("Softmax", {y}, {attr("axis", int64_t{-1})});
  if (!base.empty() && transform == "logistic") y = c.w.op("Sigmoid", {y});
  c.results = {c.out_type().dtype == t ? y : c.cast(y, c.out_type().dtype)};
}

}  // namespace

void export_edge(ExportTable& table) {
  table.add("random_uniform", random_uniform);
  table.add("random_normal", random_normal);
  table.add("bernoulli", bernoulli);
  table.add("multinomial", multinomial);
  table.add("dropout", dropout);
  table.add("string_concat", string_concat);
  table.add("string_split", string_split);
  table.add("string_normalizer", string_normalizer);
  table.add("regex_full_match", regex_full_match);
  table.add("tfidf", tfidf);
  table.add("label_encoder", label_encoder);
  table.add("tree_ensemble", tree_ensemble);
}

}  // namespace pelton::onnx
