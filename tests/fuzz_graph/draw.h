// SPDX-License-Identifier: Apache-2.0
// Random valid graphs. A graph is drawn from fragments, the stored cases of the ops and of the passes, whose
// inputs are joined to values drawn before (of the same type, and only where a small change of a value cannot
// make another result) or become inputs and constants of the graph. Everything is evaluated on the way, so
// that a graph comes with values for its inputs.
#pragma once

#include <filesystem>
#include <map>
#include <set>

#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/numerics.h"
#include "ir/verify.h"
#include "support/op_cases.h"

namespace pelton::fuzz {

using ir::Builder;
using ir::Graph;
using ir::HostValue;
using ir::NodeId;
using ir::Type;
using ir::ValueId;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {
    state_ = next() ^ 0xd1b54a32d192ed03u;  // streams of neighbouring seeds have nothing in common
  }
  uint64_t next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  size_t below(size_t n) { return next() % n; }
  bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1p-53 < p; }

 private:
  uint64_t state_;
};

struct Fragment {
  Graph graph;
  std::vector<HostValue> inputs;
  bool jumps = false;  // a small change of an operand may change the result by a step
  bool exact = false;  // results hold no rounding of their own
  bool own = false;    // operands belong together (statistics of one another) and are never other values
};

// Values for the inputs of a pass case: symbols are 3 where their range has it.
inline std::vector<HostValue> small_values(const Graph& g) {
  SymbolValues sizes;
  for (const auto& [symbol, range] : g.symbols->ranges)
    sizes[symbol] = std::max<int64_t>(range.min, std::min<int64_t>(3, range.max));
  std::vector<HostValue> out;
  Random random(7);
  for (ValueId v : g.inputs) {
    const Type& t = g.type(v);
    Tensor value = Tensor::zeros(t.dtype, eval(t.shape, sizes));
    for (int64_t i = 0; i < value.count(); ++i) {
      if (is_float(t.dtype))
        value.set_double(i, static_cast<double>(random.below(4001)) / 1000 - 2);
      else
        value.set_int(i, static_cast<int64_t>(random.below(t.dtype == DType::boolean ? 2 : 3)));
    }
    out.emplace_back(value);
  }
  return out;
}

inline void classify(Fragment& f) {
  using ir::NumericClass;
  static const std::set<std::string_view> steps = {
      "sign", "floor",   "ceil",    "round",   "trunc",    "mod",      "rem",
      "div",  "arg_max", "arg_min", "one_hot", "non_zero", "max_pool", "max_pool_backward"};
  f.exact = true;
  for (NodeId id : f.graph.order()) {
    const ir::Node& n = f.graph[id];
    NumericClass kind = ir::numerics(*n.op).kind;
    bool moves = kind == NumericClass::movement || kind == NumericClass::extremum ||
                 kind == NumericClass::bitwise || kind == NumericClass::comparison ||
                 kind == NumericClass::ordering;
    bool integers = true;
    for (ValueId v : n.inputs)
      if (v) integers &= f.graph.type(v).is_tensor() && !is_float(f.graph.type(v).dtype);
    f.exact &= moves || (integers && !n.inputs.empty());
    f.own |= n.op->name.find("_backward") != std::string_view::npos;
    f.jumps |= steps.count(n.op->name) || kind == NumericClass::comparison ||
               kind == NumericClass::ordering || kind == NumericClass::cast ||
               kind == NumericClass::quantize || kind == NumericClass::random ||
               kind == NumericClass::structure || kind == NumericClass::blending;
  }
}

// Fragments by what they are drawn by: each op of a case, or "passes/<file>/<place>".
using Fragments = std::map<std::string, std::vector<Fragment>>;

// The graph of a text, its symbols renamed by their ranges, so that fragments share those that mean the same.
inline Graph with_own_symbols(const std::string& text) {
  std::map<std::string, std::string> names;
  Graph as_written = ir::parse_graph(text);
  for (const auto& [symbol, range] : as_written.symbols->ranges)
    names[symbol] = cat(symbol, "_", range.min, "_", range.max);
  std::string out;
  auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (word(text[at]) && end < text.size() && word(text[end])) ++end;
    std::string w = text.substr(at, end - at);
    auto renamed = names.find(w);
    append(out, renamed == names.end() || (at && text[at - 1] == '%') ? w : renamed->second);
    at = end;
  }
  return ir::parse_graph(out);
}

inline Fragments load_fragments() {
  Fragments out;
  for (const std::string& file : test::case_files())
    for (test::Case& c : test::read_cases(file)) {
      int64_t size = 0;
      for (const Tensor& t : c.outputs) size += t.count();
      if (!c.code.empty() || size > 600) continue;
      Fragment f{ir::parse_graph(c.graph), c.inputs};
      if (f.graph.order().empty() || !f.graph.slots.empty()) continue;
      classify(f);
      std::set<std::string> ops;
      for (NodeId id : f.graph.order()) ops.insert(std::string(f.graph.op(id).name));
      for (const std::string& op : ops) out[op].push_back(f);
    }
  std::vector<std::string> files{"tests/fuzz_graph/fragments.txt"};
  for (const auto& entry : std::filesystem::directory_iterator("tests/passes/cases"))
    files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    std::string text = read_file(file), key = cat("passes/", file, "/");
    for (size_t at = text.find("=== "); at != text.npos;) {
      size_t line = text.find('\n', at), next = text.find("\n=== ", at),
             end = std::min(next, text.find("\n---\n", at));
      Fragment f{with_own_symbols(text.substr(line, end - line)), {}};
      bool ranked = f.graph.slots.empty();
      for (ValueId v : f.graph.inputs) ranked &= f.graph.type(v).is_tensor() && f.graph.type(v).ranked;
      if (ranked) {
        f.inputs = small_values(f.graph);
        classify(f);
        out[cat(key, at)].push_back(std::move(f));
      }
      at = next == text.npos ? next : next + 1;
    }
  }
  return out;
}

// A graph with values for its inputs. ok is false where a draw did not fit together (the graph is then
// dropped).
struct Drawn {
  Graph graph{"fuzz"};
  std::vector<HostValue> inputs;
  std::set<std::string> ops;
  bool ok = true, symbolic = false;
};

class Drawer {
 public:
  Drawer(const Fragments& fragments, uint64_t seed) : fragments_(fragments), random_(seed) {
    for (const auto& [key, list] : fragments_)
      (key.rfind("passes/", 0) == 0 ? pass_keys_ : op_keys_).push_back(key);
  }

  Drawn draw() {
    bool symbolic = random_.chance(0.4);
    size_t count = 3 + random_.below(7);
    for (size_t i = 0; i < count && d_.ok; ++i) {
      const auto& keys = random_.chance(0.45) ? pass_keys_ : op_keys_;
      const std::vector<Fragment>& list = fragments_.at(keys[random_.below(keys.size())]);
      add(list[random_.below(list.size())], symbolic);
    }
    if (!d_.ok) return std::move(d_);
    Graph& g = d_.graph;
    for (const Known& k : pool_)
      if (g[k.id].producer && random_.chance(g[k.id].uses.empty() ? 0.9 : 0.2))  // a few stay dead
        g.outputs.push_back(k.id);
    for (const auto& [symbol, range] : g.symbols->ranges) d_.symbolic |= range.min != range.max;
    for (NodeId id : g.order()) d_.ops.insert(std::string(g.op(id).name));
    // A symbol may mean more than its size did: one zero point of many columns becomes one a column.
    for (const ir::Fact& f : g.checks) d_.ok &= unknown(f.left) || unknown(f.right) || f.holds(sizes_);
    ir::verify(g, "drawing");
    return std::move(d_);
  }

 private:
  struct Known {
    ValueId id;
    HostValue value;
    bool exact, tame;  // tame: every element is finite and not large
  };

  bool unknown(const Dim& d) const {
    std::set<std::string> symbols;
    d.collect_symbols(symbols);
    return std::any_of(symbols.begin(), symbols.end(),
                       [&](const std::string& s) { return !sizes_.count(s); });
  }

  // One axis of one input becomes a symbol, if inference takes it.
  void make_symbolic(Graph& body) {
    if (body.inputs.empty()) return;
    for (int attempt = 0; attempt < 4; ++attempt) {
      ValueId v = body.inputs[random_.below(body.inputs.size())];
      if (!body.type(v).is_tensor() || body.type(v).shape.empty()) continue;
      Graph trial = body;
      size_t axis = random_.below(body.type(v).shape.size());
      const Dim& size = body.type(v).shape[axis];
      if (!size.is_const() || size.value() < 1) continue;
      std::string symbol = cat("S", symbols_made_++);
      trial.symbols->ranges[symbol] = {1, std::max<int64_t>(64, size.value())};
      trial.edit(v).type.shape[axis] = Dim::symbol(symbol);
      try {
        ir::infer_all(trial);
        ir::verify(trial);
        body = std::move(trial);
        return;
      } catch (const Error&) {
        continue;  // a size that the op fixes
      }
    }
  }

  void add(const Fragment& f, bool symbolic) {
    Graph body = f.graph;
    if (symbolic && body.symbols->ranges.empty()) make_symbolic(body);
    Graph& g = d_.graph;
    for (const auto& [symbol, range] : body.symbols->ranges) {
      auto [at, fresh] = g.symbols->ranges.emplace(symbol, range);
      if (!fresh && at->second != range) return;  // another fragment means something else by the name
    }
    Builder b(g);
    std::vector<ValueId> ids;
    bool exact = f.exact;
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      const Type& type = body.type(body.inputs[i]);
      const Known* joined = f.own ? nullptr : candidate(type, f.jumps);
      if (joined) {
        exact &= joined->exact;
        ids.push_back(joined->id);
      } else if (as_dims(type.shape) && random_.chance(0.35)) {
        ids.push_back(b.constant(f.inputs[i].tensor));
        learn(ids.back(), f.inputs[i], true);
      } else {
        ids.push_back(g.add_input(type, cat("in", d_.inputs.size())));
        d_.inputs.push_back(f.inputs[i]);
        interp::bind_symbols(type, f.inputs[i].tensor.dims(), sizes_, "fuzz");
        learn(ids.back(), f.inputs[i], true);
      }
    }
    size_t before = g.node_count();
    try {
      inline_graph(b, body, ids);
      for (size_t k = before; k < g.node_count(); ++k) evaluate(g.order()[k], exact);
    } catch (const Error&) {
      d_.ok = false;
    }
  }

  const Known* candidate(const Type& type, bool jumps) {
    if (!type.is_tensor() || !is_float(type.dtype) || !random_.chance(0.7)) return nullptr;
    std::vector<const Known*> fits;
    for (const Known& k : pool_)
      if (k.tame && (k.exact || !jumps) && d_.graph.type(k.id) == type) fits.push_back(&k);
    return fits.empty() ? nullptr : fits[random_.below(fits.size())];
  }

  void evaluate(NodeId id, bool exact) {
    const ir::Node& n = d_.graph[id];
    std::vector<HostValue> in;
    for (ValueId v : n.inputs) in.push_back(v ? values_.at(v.index) : HostValue());
    interp::Options options;
    options.symbols = sizes_;
    std::vector<HostValue> out = interp::run_node(d_.graph, id, in, options);
    for (size_t i = 0; i < out.size(); ++i) {
      const Type& t = d_.graph.type(n.outputs[i]);
      if (t.is_tensor()) interp::bind_symbols(t, out[i].tensor.dims(), sizes_, "fuzz");
      learn(n.outputs[i], out[i], exact);
    }
  }

  void learn(ValueId id, const HostValue& value, bool exact) {
    values_[id.index] = value;
    bool tame = value.kind == ir::TypeKind::tensor && value.tensor.dtype() != DType::string;
    for (int64_t i = 0; tame && i < value.tensor.count(); ++i) {
      double x = value.tensor.get_double(i);
      tame = x == x && x > -1e3 && x < 1e3;
    }
    pool_.push_back({id, value, exact, tame});
  }

  const Fragments& fragments_;
  Random random_;
  std::vector<std::string> op_keys_, pass_keys_;
  Drawn d_;
  std::vector<Known> pool_;
  std::map<uint32_t, HostValue> values_;
  SymbolValues sizes_;
  int symbols_made_ = 0;
};

}  // namespace pelton::fuzz
