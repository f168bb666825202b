// SPDX-License-Identifier: Apache-2.0
// Tree ensembles of ai.onnx.ml, in their three encodings, as the IR's tree_ensemble.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "onnx/import/helpers.h"
#include "onnx/import/ml.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

constexpr int64_t kMember = 6, kLeaf = 7;

struct Forest {
  Ints modes, features, yes, no, missing, roots, leaf_targets;
  Floats splits, leaf_weights, members, base;
  int64_t targets = 1;
  std::string aggregate = "sum", transform = "none";

  ValueId emit(NodeContext& c, DType to) const {
    ValueId x = c.in(0);
    if (c.b.rank(x) == 1) x = c.b.unsqueeze(x, {0});
    return c.b.op("tree_ensemble", {x},
                  {{"modes", modes},
                   {"features", features},
                   {"splits", splits},
                   {"yes", yes},
                   {"no", no},
                   {"missing_yes", missing},
                   {"members", members},
                   {"roots", roots},
                   {"leaf_targets", leaf_targets},
                   {"leaf_weights", leaf_weights},
                   {"base", base},
                   {"targets", targets},
                   {"aggregate", aggregate},
                   {"transform", transform},
                   {"to", to}});
  }
};

std::string lower(std::string s) {
  for (char& k : s) k = static_cast<char>(k >= 'A' && k <= 'Z' ? k + 32 : k);
  return s;
}

// A list of numbers, in f64 when the model gives a tensor instead.
Floats reals(NodeContext& c, std::string_view name) {
  Tensor t = c.get_tensor(cat(name, "_as_tensor"));
  return t.defined() ? to_doubles(t) : c.get_reals(name);
}

int64_t mode_of(NodeContext& c, const std::string& name) {
  static constexpr std::array<std::string_view, 8> names = {"BRANCH_LEQ",    "BRANCH_LT", "BRANCH_GTE",
                                                            "BRANCH_GT",     "BRANCH_EQ", "BRANCH_NEQ",
                                                            "BRANCH_MEMBER", "LEAF"};
  auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end()) c.refuse(ErrorCode::bad_format, cat("has a node of mode \"", name, "\""));
  return it - names.begin();
}

// The encoding of versions 1 to 3: nodes named by tree and number, votes by tree and node.
Forest read_named(NodeContext& c, std::string_view vote) {
  Forest f;
  Ints trees = c.get_ints("nodes_treeids"), ids = c.get_ints("nodes_nodeids"),
       yes = c.get_ints("nodes_truenodeids"), no = c.get_ints("nodes_falsenodeids");
  f.features = c.get_ints("nodes_featureids");
  f.splits = reals(c, "nodes_values");
  f.missing = c.get_ints("nodes_missing_value_tracks_true");
  Strings modes = c.get_texts("nodes_modes");
  size_t n = modes.size();
  if (trees.size() != n || ids.size() != n || yes.size() != n || no.size() != n || f.features.size() != n ||
      f.splits.size() != n)
    c.refuse(ErrorCode::bad_format, cat("has lists of different lengths for ", n, " nodes"));
  if (f.missing.size() != n) f.missing.clear();
  std::map<std::pair<int64_t, int64_t>, int64_t> place;
  for (size_t i = 0; i < n; ++i)
    if (!place.emplace(std::pair{trees[i], ids[i]}, static_cast<int64_t>(i)).second)
      c.refuse(ErrorCode::bad_format, cat("has node ", ids[i], " of tree ", trees[i], " twice"));
  auto find = [&](int64_t tree, int64_t id) {
    auto it = place.find({tree, id});
    if (it == place.end()) c.refuse(ErrorCode::bad_format, cat("lacks node ", id, " of tree ", tree));
    return it->second;
  };
  Ints vote_trees = c.get_ints(cat(vote, "_treeids")), vote_nodes = c.get_ints(cat(vote, "_nodeids")),
       vote_ids = c.get_ints(cat(vote, "_ids"));
  Floats weights = reals(c, cat(vote, "_weights"));
  if (vote_trees.size() != weights.size() || vote_nodes.size() != weights.size() ||
      vote_ids.size() != weights.size())
    c.refuse(ErrorCode::bad_format, "has lists of different lengths for its votes");
  std::map<int64_t, std::vector<size_t>> votes;
  for (size_t i = 0; i < weights.size(); ++i) votes[find(vote_trees[i], vote_nodes[i])].push_back(i);
  f.yes.assign(n, 0);
  f.no.assign(n, 0);
  std::vector<bool> child(n, false);
  for (size_t i = 0; i < n; ++i) {
    f.modes.push_back(mode_of(c, modes[i]));
    if (f.modes[i] == kLeaf) {
      f.yes[i] = static_cast<int64_t>(f.leaf_targets.size());
      for (size_t v : votes[static_cast<int64_t>(i)]) {
        f.leaf_targets.push_back(vote_ids[v]);
        f.leaf_weights.push_back(weights[v]);
        ++f.no[i];
      }
      continue;
    }
    f.yes[i] = find(trees[i], yes[i]);
    f.no[i] = find(trees[i], no[i]);
    child[static_cast<size_t>(f.yes[i])] = child[static_cast<size_t>(f.no[i])] = true;
  }
  for (size_t i = 0; i < n; ++i)
    if (!child[i]) f.roots.push_back(static_cast<int64_t>(i));
  // A cycle below a root is refused with the op; one that no root leads to would just be left out.
  Ints reached = f.roots;
  std::vector<bool> seen = child;  // true: not reached yet
  for (size_t k = 0; k < reached.size(); ++k) {
    const auto i = static_cast<size_t>(reached[k]);
    if (f.modes[i] == kLeaf) continue;
    for (int64_t next : {f.yes[i], f.no[i]})
      if (seen[static_cast<size_t>(next)]) {
        seen[static_cast<size_t>(next)] = false;
        reached.push_back(next);
      }
  }
  if (reached.size() != n)
    c.refuse(ErrorCode::bad_format,
             cat("has ", n - reached.size(), " nodes on a cycle that no root leads to"));
  f.base = reals(c, "base_values");
  f.transform = lower(c.get_text("post_transform", "NONE"));
  return f;
}

void regressor(NodeContext& c) {
  Forest f = read_named(c, "target");
  f.targets = c.get_int("n_targets", 1);
  f.aggregate = lower(c.get_text("aggregate_function", "SUM"));
  c.out(0, f.emit(c, DType::f32));
}

void classifier(NodeContext& c) {
  Forest f = read_named(c, "class");
  auto labels = static_cast<int64_t>(
      std::max(c.get_ints("classlabels_int64s").size(), c.get_texts("classlabels_strings").size()));
  std::set<int64_t> voted(f.leaf_targets.begin(), f.leaf_targets.end());
  if (labels != 2 || voted.size() != 1) {
    f.targets = labels;
    ValueId raw = f.emit(c, DType::f32);
    // The label of the greatest result. Where the transform keeps the order it is taken before, where no two
    // scores have met at 0 or 1 by rounding.
    std::string transform = std::exchange(f.transform, "none");
    ValueId plain = transform == "none" || transform == "softmax_zero" ? raw : f.emit(c, DType::f32);
    c.out(0, label_of(c, plain));
    return c.out(1, raw);
  }
  // One score for two classes: a probability where no vote is negative, else a margin around zero.
  bool probability =
      std::all_of(f.leaf_weights.begin(), f.leaf_weights.end(), [](double w) { return w >= 0; });
  std::fill(f.leaf_targets.begin(), f.leaf_targets.end(), 0);
  if (f.base.size() == 2) f.base = {f.base[1]};
  f.targets = 1;
  f.transform = "none";
  ValueId score = f.emit(c, DType::f32);
  ValueId other = probability ? c.b.sub(c.b.like(score, 1), score) : c.b.op("neg", {score});
  ValueId both = concat(c, {other, score}, 1);
  c.out(0, label_of(c, both));
  c.out(1, post_transform(c, both));
}

// The encoding of version 5: branches and leaves in two lists; a set's members stand in node order.
void ensemble(NodeContext& c) {
  Forest f;
  Tensor modes = c.get_tensor("nodes_modes"), splits = c.get_tensor("nodes_splits"),
         weights = c.get_tensor("leaf_weights"), members = c.get_tensor("membership_values");
  Ints yes = c.get_ints("nodes_truenodeids"), no = c.get_ints("nodes_falsenodeids"),
       yes_leaf = c.get_ints("nodes_trueleafs"), no_leaf = c.get_ints("nodes_falseleafs"),
       targets = c.get_ints("leaf_targetids");
  f.features = c.get_ints("nodes_featureids");
  f.roots = c.get_ints("tree_roots");
  f.missing = c.get_ints("nodes_missing_value_tracks_true");
  if (!modes.defined() || !splits.defined() || !weights.defined())
    c.refuse(ErrorCode::bad_format, "lacks nodes_modes, nodes_splits or leaf_weights");
  auto n = static_cast<size_t>(modes.count());
  if (static_cast<size_t>(splits.count()) != n || yes.size() != n || no.size() != n || yes_leaf.size() != n ||
      no_leaf.size() != n || f.features.size() != n ||
      static_cast<int64_t>(targets.size()) != weights.count())
    c.refuse(ErrorCode::bad_format, cat("has lists of different lengths for ", n, " nodes"));
  f.modes = to_ints(modes);
  f.splits = to_doubles(splits);
  if (members.defined()) f.members = to_doubles(members);
  size_t set = 0;
  for (size_t i = 0; i < n; ++i)
    if (f.modes[i] == kMember) {
      f.splits[i] = static_cast<double>(set);
      while (set < f.members.size() && !std::isnan(f.members[set])) ++set;
      ++set;
    }
  // Leaves follow the branches as nodes of their own.
  auto leaves = static_cast<int64_t>(targets.size());
  auto node_of = [&](int64_t id, bool leaf) {
    if (id < 0 || id >= (leaf ? leaves : static_cast<int64_t>(n)))
      c.refuse(ErrorCode::bad_format, cat("refers to ", leaf ? "leaf " : "node ", id));
    return leaf ? static_cast<int64_t>(n) + id : id;
  };
  for (size_t i = 0; i < n; ++i) {
    f.yes.push_back(node_of(yes[i], yes_leaf[i] != 0));
    f.no.push_back(node_of(no[i], no_leaf[i] != 0));
  }
  for (int64_t i = 0; i < leaves; ++i) {
    f.modes.push_back(kLeaf);
    f.features.push_back(0);
    f.splits.push_back(0);
    f.yes.push_back(i);
    f.no.push_back(1);
    if (!f.missing.empty()) f.missing.push_back(0);
  }
  f.leaf_targets = targets;
  f.leaf_weights = to_doubles(weights);
  f.targets = c.get_int("n_targets", 1);
  static constexpr std::array<std::string_view, 4> aggregates = {"average", "sum", "min", "max"};
  static constexpr std::array<std::string_view, 5> transforms = {"none", "softmax", "logistic",
                                                                 "softmax_zero", "probit"};
  int64_t aggregate = c.get_int("aggregate_function", 1), transform = c.get_int("post_transform", 0);
  if (aggregate < 0 || aggregate > 3 || transform < 0 || transform > 4)
    c.refuse(ErrorCode::bad_format,
             cat("has aggregate_function ", aggregate, " and post_transform ", transform));
  f.aggregate = aggregates[static_cast<size_t>(aggregate)];
  f.transform = transforms[static_cast<size_t>(transform)];
  c.out(0, f.emit(c, c.b.dtype(c.in(0))));
}

}  // namespace

void add_ml_trees(ImportTable& table) {
  table.add(kMlDomain, "TreeEnsemble", ensemble);
  table.add(kMlDomain, "TreeEnsembleRegressor", regressor);
  table.add(kMlDomain, "TreeEnsembleClassifier", classifier);
}

}  // namespace pelton::onnx
