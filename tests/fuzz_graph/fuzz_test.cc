// SPDX-License-Identifier: Apache-2.0
// Every pass keeps the value of random graphs and changes nothing the second time. Reports what was drawn and
// what fired; too little of either fails. PELTON_FUZZ_SEED and PELTON_FUZZ_GRAPHS choose other graphs,
// PELTON_FUZZ_ONLY one by the seed that a failure names.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "fuzz_graph/draw.h"
#include "interp/accept.h"
#include "ir/op.h"
#include "passes/absorb.h"
#include "passes/composites.h"
#include "passes/cse.h"
#include "passes/decompose.h"
#include "passes/fold.h"
#include "passes/fold_norm.h"
#include "passes/fuse_products.h"
#include "passes/fusion.h"
#include "passes/layout.h"
#include "passes/movement.h"
#include "passes/narrow_reads.h"
#include "passes/precision.h"
#include "passes/product_shape.h"
#include "passes/quantize.h"
#include "passes/rewrite.h"
#include "passes/siblings.h"
#include "passes/simplify.h"
#include "passes/specialise.h"
#include "passes/static_shape.h"
#include "passes/tie.h"
#include "passes/weight_names.h"
#include "runtime/refit.h"
#include "tensor/transpose.h"

using namespace pelton;
using namespace pelton::fuzz;

namespace {

// Takes everything but composites, in any layout; groups if asked.
class TakesPrimitives : public passes::KernelOracle {
 public:
  explicit TakesPrimitives(bool groups) : groups_(groups) {}
  std::string refuse(const Graph& g, NodeId id) const override {
    if (g[id].is("fused")) return groups_ ? "" : "groups are split";
    return g.op(id).decompose ? "composites are split" : "";
  }
  std::string choice(const Graph& g, NodeId id) const override { return std::string(g.op(id).name); }

 private:
  bool groups_;
};

enum class Keeps : uint8_t { bits, value, type };  // value: by the acceptance rule; type: sizes alone
struct Pass {
  const char* name;
  std::function<bool(Graph&, const passes::Context&)> run;
  Keeps keeps;
};

bool specialise_all(Graph& g, const passes::Context& c, const std::vector<HostValue>& inputs) {
  passes::InputShapes shapes;
  for (size_t i = 0; i < inputs.size(); ++i)
    for (int64_t d : inputs[i].tensor.dims()) shapes[g[g.inputs[i]].name].push_back({d, d, d});
  return passes::specialise(g, shapes, nullptr, c);
}

bool quantize_all(Graph& g, const passes::Context& c) {
  std::map<uint32_t, passes::QuantizeRange> ranges;
  for (NodeId id : passes::quantizable(g)) ranges[id.index] = {id.index % 2 ? -4.0 : 0.0, 4};
  return passes::quantize(g, ranges, c);
}

// Convolutions by turns channels last, in blocks and plain. As in the compiler none is dead: the turns of
// those that are left would be others the second time.
bool layout_by_region(Graph& g, const passes::Context& c) {
  const bool dead = passes::remove_dead(g);
  const ir::Layout ways[] = {{ir::Layout::Kind::channels_last, 0}, {ir::Layout::Kind::blocked, 8}, {}};
  std::vector<ir::Layout> by_anchor;
  for (size_t i = passes::count_layout_anchors(g, c); i-- > 0;)
    by_anchor.push_back(ways[by_anchor.size() % 3]);
  return passes::layout(g, c, {}, by_anchor) || dead;
}

// The pass as it is for a device.
template <class Run>
auto on_device(Run run) {
  return [run](Graph& g, passes::Context c) {
    c.target = device::cuda_target(90);
    c.lowered = true;
    return run(g, c);
  };
}

// Products of a backward half, for a target that takes every group.
bool fuse_products(Graph& g, passes::Context c) {
  static const TakesPrimitives takes_groups(true);
  c.oracle = &takes_groups;
  return passes::fuse_products(g, c);
}

const std::vector<Pass>& all_passes() {
  static const std::vector<Pass> list = {
      {"fold", [](Graph& g, const passes::Context& c) { return passes::fold(g, c); }, Keeps::bits},
      {"static_shape", passes::static_shape, Keeps::bits},
      {"simplify", passes::simplify, Keeps::bits},
      {"movement", passes::movement, Keeps::bits},
      {"cse", passes::cse, Keeps::bits},
      {"composites", passes::composites, Keeps::value},
      {"fold_norm", passes::fold_norm, Keeps::value},
      {"precision", [](Graph& g, const passes::Context& c) { return passes::precision(g, "bf16", c); },
       Keeps::type},
      {"precision of devices",
       on_device([](Graph& g, const passes::Context& c) { return passes::precision(g, "fp16", c); }),
       Keeps::type},
      {"narrow_reads", on_device(passes::narrow_reads), Keeps::type},
      {"product_shape", on_device(passes::product_shape), Keeps::value},
      {"decompose", passes::decompose, Keeps::value},
      {"absorb", passes::absorb, Keeps::value},
      {"tie", passes::tie, Keeps::value},
      {"quantize", quantize_all, Keeps::type},
      {"siblings", passes::siblings, Keeps::value},
      {"layout", [](Graph& g, const passes::Context& c) { return passes::layout(g, c); }, Keeps::bits},
      {"layout by region", layout_by_region, Keeps::bits},
      {"fuse_products", fuse_products, Keeps::bits},
      {"fusion", passes::fusion, Keeps::bits},
      {"dead_code", [](Graph& g, const passes::Context&) { return passes::remove_dead(g); }, Keeps::bits},
  };
  return list;
}

bool same_bits(const HostValue& a, const HostValue& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i)
    if (!same_bits(a.items[i], b.items[i])) return false;
  if (a.kind != ir::TypeKind::tensor) return true;
  const Tensor &x = a.tensor, &y = b.tensor;
  if (x.dtype() != y.dtype() || x.dims() != y.dims()) return false;
  if (x.dtype() == DType::string) return x.strings() == y.strings();
  if (!is_float(x.dtype())) return x.same_bytes(y);
  for (int64_t i = 0; i < x.count(); ++i) {  // 0 and -0 are one value, and so are all NaN
    double u = x.get_double(i), v = y.get_double(i);
    if (u != v && !(std::isnan(u) && std::isnan(v))) return false;
  }
  return true;
}

// Text of the living nodes, values and sizes that appear in the run numbered anew, unused symbols left out.
std::string text_of(Graph g) {
  passes::remove_dead(g);
  g.sort();
  g.compact();
  std::string text = ir::print(g), out;
  std::map<std::string, std::string> names;
  auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
  for (size_t at = 0; at < text.size();) {
    if (text.compare(at, 9, "  symbol ") == 0) {  // ranges are the graph's own affair
      at = text.find('\n', at) + 1;
      continue;
    }
    size_t end = at + 1;
    if (word(text[at])) {
      while (end < text.size() && word(text[end])) ++end;
      std::string w = text.substr(at, end - at);
      bool type = dtype_from_name(w) && (text[end] == '[' || (at > 1 && text.compare(at - 2, 2, "= ") == 0));
      if (w.size() > 1 && w[0] == 'u' && w.find_first_not_of("0123456789", 1) == w.npos && !type)
        w = names.emplace(w, cat("fresh", names.size())).first->second;
      append(out, w);
    } else {
      out += text[at];
    }
    at = end;
  }
  return out;
}

struct Coverage {
  std::map<std::string, int64_t> ops, fired, changed;
  int graphs = 0, symbolic = 0, dropped = 0;
  int refitted = 0, refused = 0;  // new values of weights
};

// Rules named in the sources of the passes.
std::set<std::string> rule_names() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("src/passes")) {
    if (entry.path().extension() != ".cc") continue;
    std::string text = read_file(entry.path().string());
    for (size_t at = text.find('"'); at != text.npos; at = text.find('"', at + 1)) {
      size_t end = text.find('"', at + 1);
      std::string word = text.substr(at + 1, end - at - 1);
      size_t slash = word.find('/');
      bool plain = slash != 0 && slash != word.npos && slash + 1 < word.size() &&
                   word.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789/") == word.npos;
      if (plain) names.insert(word);
      at = end;
      if (at == text.npos) break;
    }
  }
  return names;
}

class Check {
 public:
  Check(const Drawn& d, const passes::Context& context, Coverage& coverage)
      : d_(d), context_(context), coverage_(coverage), want_(interp::run(d.graph, d.inputs).outputs) {}

  void pass(const Pass& p, const Graph& from) {
    Graph g = from;
    INFO("pass " << std::string(p.name));
    try {
      bool changed = p.run(g, context_);
      coverage_.changed[p.name] += changed;
      ir::verify(g, p.name);
      if (!changed) {
        if (std::string_view(p.name) == "fusion")
          values(g, Keeps::bits);  // a group that nothing takes is split into copies of its nodes
        else
          CHECK(text_of(g) == text_of(from));
        return;
      }
      for (NodeId id : g.order()) ++coverage_.ops[std::string(g.op(id).name)];  // some ops only passes make
      values(g, p.keeps);
      std::string once = text_of(g);
      bool again = p.run(g, context_);
      std::string twice = text_of(g);
      CAPTURE(twice);
      CHECK(twice == once);
      if (std::string_view(p.name) != "specialise") CHECK(!again);  // which says that it ran
    } catch (const Error& e) {
      FAIL_CHECK("error: " << std::string(e.what()));
    }
  }

  // All passes in a row, clean-up between them.
  void pipeline() {
    const Graph named = with_names(d_.graph);
    const std::set<std::string> weights = passes::weight_names(named);
    Graph g = named;
    INFO("the passes in a row");
    try {
      for (const Pass& p : all_passes()) {
        if (p.keeps == Keeps::type) continue;
        p.run(g, context_);
        for (int round = 0; round < 4; ++round) {
          bool changed = false;
          for (size_t i = 0; i < 5; ++i) changed |= all_passes()[i].run(g, context_);
          if (!changed) break;
        }
      }
      ir::verify(g, "the passes");
      values(g, Keeps::value);
      passes::keep_names(g, weights);
      for (const std::string& name : weights) new_values(named, g, name);
    } catch (const Error& e) {
      FAIL_CHECK("error: " << std::string(e.what()));
    }
  }

 private:
  static Graph with_names(Graph g) {
    for (NodeId id : g.order())
      if (g[id].is("constant")) g.edit(g[id].outputs[0]).name = cat("weight", id.index);
    return g;
  }

  // The graph that the passes made takes new values of the weight and computes what the graph as it was drawn
  // computes with them; or it refuses them.
  void new_values(const Graph& drawn, const Graph& made, const std::string& weight) {
    Graph changed = drawn;
    Tensor value;
    for (NodeId id : changed.order())
      if (changed[changed[id].outputs[0]].name == weight)
        value = other_values(changed[id].get_tensor("value"));
    for (const auto& [name, transpose] : held_as_one(made, weight))
      for (NodeId id : changed.order())
        if (changed[changed[id].outputs[0]].name == name)
          changed.edit(id).attrs["value"] = transpose ? transposed(value) : value;
    INFO("new values of " << weight << ": " << ir::print(ir::Attr(value)));
    std::shared_ptr<const runtime::Plan> refitted;
    try {
      runtime::Plan plan;
      plan.graph = made;
      refitted = runtime::refit(plan, {{weight, value}});
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::bad_name);
      ++coverage_.refused;
      return;
    }
    try {
      want_ = interp::run(changed, d_.inputs).outputs;
    } catch (const Error&) {
      return;  // values that the model refuses
    }
    ++coverage_.refitted;
    references_.clear();
    reference_graph_ = &changed;
    values(refitted->graph, Keeps::value);
  }
  // The weights that the graph holds as one with this one, which is among them; true: transposed.
  static std::map<std::string, bool> held_as_one(const Graph& g, const std::string& weight) {
    std::map<std::string, bool> out{{weight, false}};
    for (NodeId id : g.order()) {
      if (!g[id].is("constant")) continue;
      std::map<std::string, bool> names{{g[g[id].outputs[0]].name, false}};
      for (const std::string& n : g[id].get_strings("same_names")) names[n] = false;
      for (const std::string& n : g[id].get_strings("transposed_names")) names[n] = true;
      if (names.count(weight))
        for (const auto& [name, transpose] : names) out[name] = transpose != names[weight];
    }
    return out;
  }
  static Tensor other_values(const Tensor& t) {
    Tensor out = Tensor::zeros(t.dtype(), t.dims());
    Random random(static_cast<uint64_t>(t.count()));
    for (int64_t i = 0; i < t.count(); ++i)
      if (is_float(t.dtype()))
        out.set_double(i, t.get_double(i) + 0.1 + static_cast<double>(random.below(1000)) / 1000);
      else
        out.set_int(i, static_cast<int64_t>(random.below(3)));
    return out;
  }

  void values(const Graph& g, Keeps keeps) {
    std::vector<HostValue> got = interp::run(g, d_.inputs).outputs;
    REQUIRE(got.size() == want_.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      if (keeps == Keeps::type)
        CHECK(got[i].tensor.str() == want_[i].tensor.str());
      else if (keeps == Keeps::bits || want_[i].kind != ir::TypeKind::tensor)
        CHECK(same_bits(got[i], want_[i]));
      else if (!same_bits(got[i], want_[i]))
        CHECK(interp::judge(reference(i), got[i].tensor).reason == "");
    }
  }
  // By output; outputs that are no tensors have none.
  const interp::Reference& reference(size_t output) {
    if (references_.empty()) {
      Graph tensors = *reference_graph_;
      std::vector<ValueId> all = tensors.outputs;
      tensors.outputs.clear();
      std::vector<size_t> which;
      for (size_t i = 0; i < all.size(); ++i)
        if (tensors.type(all[i]).is_tensor()) {
          tensors.outputs.push_back(all[i]);
          which.push_back(i);
        }
      std::vector<interp::Reference> list = interp::references(tensors, d_.inputs);
      for (size_t k = 0; k < list.size(); ++k) references_[which[k]] = list[k];
    }
    return references_.at(output);
  }

  const Drawn& d_;
  const passes::Context& context_;
  Coverage& coverage_;
  const Graph* reference_graph_ = &d_.graph;
  std::vector<HostValue> want_;
  std::map<size_t, interp::Reference> references_;
};

int64_t setting(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atoll(text) : otherwise;
}

std::string counts(const std::map<std::string, int64_t>& list) {
  std::string out;
  for (const auto& [key, n] : list) append(out, cat(out.empty() ? "" : ", ", key, " ", n));
  return out;
}

}  // namespace

TEST_CASE("passes keep the value of random graphs and change nothing twice") {
  Fragments fragments = load_fragments();
  int64_t graphs = setting("PELTON_FUZZ_GRAPHS", 1100), first = setting("PELTON_FUZZ_SEED", 1);
  int64_t only = setting("PELTON_FUZZ_ONLY", 0);
  if (only) graphs = 1;
  Coverage coverage;
  TakesPrimitives takes_groups(true), splits_groups(false);
  for (int64_t i = 0; coverage.graphs < graphs && coverage.dropped < graphs; ++i) {
    uint64_t seed = static_cast<uint64_t>(only ? only : first * 1000003 + i);
    Drawn d = Drawer(fragments, seed).draw();
    if (!d.ok || d.graph.outputs.empty()) {
      ++coverage.dropped;
      continue;
    }
    ++coverage.graphs;
    coverage.symbolic += d.symbolic;
    for (const std::string& op : d.ops) ++coverage.ops[op];
    passes::Context context;
    context.fired = &coverage.fired;
    if (seed % 2) context.oracle = seed % 4 == 1 ? &takes_groups : &splits_groups;
    std::string text = ir::print(d.graph);
    CAPTURE(seed);
    CAPTURE(text);
    Check check(d, context, coverage);
    for (const Pass& p : all_passes()) check.pass(p, d.graph);
    check.pass(
        {"specialise", [&](Graph& g, const passes::Context& c) { return specialise_all(g, c, d.inputs); },
         Keeps::bits},
        d.graph);
    check.pipeline();
  }
  MESSAGE("graphs ", coverage.graphs, ", symbolic ", coverage.symbolic, ", dropped ", coverage.dropped);
  MESSAGE("weights with new values ", coverage.refitted, ", refused ", coverage.refused);
  MESSAGE("ops: ", counts(coverage.ops));
  MESSAGE("passes that changed something: ", counts(coverage.changed));
  MESSAGE("rules: ", counts(coverage.fired));
  if (graphs < 700) return;  // a short run looks for wrong values only

  CHECK(coverage.dropped * 5 <= coverage.graphs);
  CHECK(coverage.symbolic * 3 >= coverage.graphs);
  CHECK(coverage.refitted >= 1000);  // about 1,700 at any seed
  CHECK(coverage.refused >= 20);
  for (const ir::OpDef* op : ir::all_ops()) {
    if (op->name == "custom") continue;  // needs a plug-in
    CAPTURE(op->name);
    CHECK(coverage.ops.count(std::string(op->name)) == 1);
  }
  for (const Pass& p : all_passes()) {
    CAPTURE(std::string(p.name));
    CHECK(coverage.changed[p.name] >= 20);
  }
  for (const std::string& rule : rule_names()) {
    CAPTURE(rule);
    CHECK(coverage.fired[rule] >= 20);
  }
}
