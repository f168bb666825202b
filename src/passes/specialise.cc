// SPDX-License-Identifier: Apache-2.0
#include "passes/specialise.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "base/log.h"
#include "ir/fact.h"
#include "ir/infer.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

Shape substitute(const Shape& shape, const Replacements& r) {
  Shape out;
  for (const Dim& d : shape) out.push_back(d.substitute(r));
  return out;
}

void substitute(Type& t, const Replacements& r) {
  t.shape = substitute(t.shape, r);
  auto inside = [&](const Type& held) {
    Type copy = held;
    substitute(copy, r);
    return copy;
  };
  if (t.element) t.element = std::make_shared<const Type>(inside(*t.element));
  if (t.items) {
    std::vector<Type> items;
    for (const Type& item : *t.items) items.push_back(inside(item));
    t.items = std::make_shared<const std::vector<Type>>(std::move(items));
  }
}

// Sizes may leave one branch of an `if` that cannot run: it becomes one that refuses the run which takes it.
void refuse_lost_branch(Graph& g, NodeId id) {
  std::optional<Error> refused[2];
  std::shared_ptr<Graph> branches[2];
  const char* const names[] = {"then", "else"};
  for (int i : {0, 1}) {
    branches[i] = std::make_shared<Graph>(g[id].get_graph(names[i]));
    branches[i]->symbols = g.symbols;
    try {
      infer_all(*branches[i]);
    } catch (const Error& e) {
      if (!is_misfit(e)) return;  // inference of the whole will say it
      refused[i] = e;
    }
  }
  if (refused[0].has_value() == refused[1].has_value()) return;
  const int lost = refused[0] ? 0 : 1;
  const std::string branch = cat(names[lost], " branch of ", g.describe(id));
  auto stand_in = std::make_shared<Graph>("impossible");
  stand_in->symbols = g.symbols;
  std::vector<Type> captured;
  for (size_t i = 1; i < g[id].inputs.size(); ++i) {
    captured.push_back(g.type(g[id].inputs[i]));
    stand_in->add_input(captured.back());
  }
  if (!make_impossible(*stand_in, *branches[1 - lost], captured, cat(branch, ": ", refused[lost]->what())))
    return;
  if (!g.constant(g[id].inputs[0]))
    log_warn("the ", branch,
             " cannot run at these sizes, a run that takes it is refused: ", refused[lost]->what());
  g.edit(id).attrs.find(names[lost])->second = GraphPtr(std::move(stand_in));
}

}  // namespace

void substitute(Graph& g, const Replacements& r) {
  for (ValueId v : g.inputs) substitute(g.edit(v).type, r);
  for (Slot& s : g.slots) {
    substitute(s.type, r);
    substitute(g.edit(s.old_value).type, r);
  }
  for (std::vector<Fact>* facts : {&g.checks, &g.guards}) {
    for (Fact& f : *facts) {
      f.left = f.left.substitute(r);
      f.right = f.right.substitute(r);
    }
    std::erase_if(*facts, [](const Fact& f) {
      if (f.relation == Fact::Relation::equal && f.left == f.right) return true;
      return f.left.is_const() && f.right.is_const() && f.holds({});
    });
  }
  for (NodeId id : g.order()) {
    Node& n = g.edit(id);
    for (auto& [key, value] : n.attrs) {
      if (auto dims = std::get_if<Shape>(&value))
        *dims = substitute(*dims, r);
      else if (auto body = std::get_if<GraphPtr>(&value)) {
        auto copy = std::make_shared<Graph>(**body);
        copy->symbols = g.symbols;
        substitute(*copy, r);
        value = GraphPtr(std::move(copy));
      }
    }
    for (ValueId v : n.outputs) {
      substitute(g.edit(v).type, r);
      if (auto& contents = g.edit(v).contents) contents = substitute(*contents, r);
    }
    if (n.is("if")) refuse_lost_branch(g, id);
  }
}

namespace {

struct Told {
  ValueId value;
  size_t axis;
  std::string symbol;
};

// The first place of each symbol that no input has; `seen` receives all symbols.
std::vector<Told> told_symbols(const Graph& g, std::set<std::string>& seen) {
  std::vector<Told> out;
  auto collect = [&](const Type& t) {
    for (const Dim& d : t.shape) d.collect_symbols(seen);
  };
  for (ValueId v : g.inputs) collect(g.type(v));
  for (const Slot& s : g.slots) collect(s.type);
  for (NodeId id : g.order())
    for (ValueId v : g[id].outputs) {
      const Type& t = g.type(v);
      for (size_t d = 0; d < t.shape.size(); ++d)
        if (auto symbol = t.shape[d].as_symbol(); symbol && !seen.count(*symbol))
          out.push_back({v, d, *symbol});
      collect(t);
    }
  return out;
}

}  // namespace

void infer_again(Graph& graph) {
  for (bool found = true; found;) {
    std::set<std::string> seen;
    const std::vector<Told> before = told_symbols(graph, seen);
    infer_all(graph);
    Replacements known;
    for (const Told& told : before) {
      const Shape& shape = graph.type(told.value).shape;
      if (told.axis >= shape.size()) continue;
      std::set<std::string> names;
      shape[told.axis].collect_symbols(names);
      const bool older = std::includes(seen.begin(), seen.end(), names.begin(), names.end());
      if (older && !names.count(told.symbol)) known.emplace(told.symbol, shape[told.axis]);
    }
    found = !known.empty();
    if (found) substitute(graph, known);
  }
}

namespace {

std::string input_names(const Graph& g) {
  std::string out;
  for (ValueId v : g.inputs) append(out, cat(out.empty() ? "" : ", ", "'", g[v].name, "'"));
  return out;
}

}  // namespace

bool specialise(Graph& graph, const InputShapes& shapes, std::map<std::string, int64_t>* optimum,
                const Context& context) {
  Replacements replacements;
  for (const auto& [name, dims] : shapes) {
    ValueId found;
    for (ValueId v : graph.inputs)
      if (graph[v].name == name) found = v;
    if (!found)
      fail(ErrorCode::bad_name, cat("the model has no input '", name, "'"), "--shape",
           cat("its inputs are ", input_names(graph)));
    Type& t = graph.edit(found).type;
    if (!t.is_tensor())
      fail(ErrorCode::bad_type, cat("input '", name, "' is a ", t.str()), "--shape",
           "only tensors have a shape");
    if (!t.ranked) {
      Shape fresh;
      for (size_t i = 0; i < dims.size(); ++i) fresh.push_back(fresh_symbol(graph, {0, INT64_MAX}));
      t = Type::tensor(t.dtype, fresh);
    }
    if (t.shape.size() != dims.size())
      fail(ErrorCode::bad_shape,
           cat("input '", name, "' has rank ", t.shape.size(), " (", t.str(), "), not ", dims.size()),
           "--shape");
    for (size_t i = 0; i < dims.size(); ++i) {
      const DimRange& want = dims[i];
      auto symbol = t.shape[i].as_symbol();
      if (t.shape[i].is_const() || !symbol) {
        int64_t have = t.shape[i].is_const() ? t.shape[i].value() : -1;
        if (want.min != want.max || have != want.min)
          fail(ErrorCode::bad_shape,
               cat("axis ", i, " of input '", name, "' is fixed at ", t.shape[i].str(), " by the model"),
               "--shape");
        continue;
      }
      Range& range = graph.symbols->ranges[*symbol];
      Range both{std::max(range.min, want.min), std::min(range.max, want.max)};
      if (both.min > both.max || (replacements.count(*symbol) &&
                                  (want.min != want.max || !(replacements.at(*symbol) == Dim(want.min)))))
        fail(ErrorCode::bad_shape,
             cat("axis ", i, " of input '", name, "' (", *symbol, ") cannot be ", want.min, ":", want.max),
             "--shape", "sizes with one name must agree");
      range = both;
      if (both.min == both.max)
        replacements.insert_or_assign(*symbol, Dim(both.min));
      else if (optimum)
        (*optimum)[*symbol] = want.opt;
    }
  }
  for (const auto& [symbol, range] : graph.symbols->ranges)
    if (range.min == range.max) replacements.insert_or_assign(symbol, Dim(range.min));
  if (replacements.empty() && shapes.empty()) return false;
  for (const auto& [symbol, dim] : replacements) {
    context.count("specialise/symbol");
    graph.symbols->ranges.erase(symbol);
  }
  substitute(graph, replacements);
  infer_again(graph);
  return true;
}

std::vector<DimRange> parse_shape(const std::string& text) {
  auto bad = [&] {
    fail(ErrorCode::usage, cat("'", text, "' is not a shape"), "--shape",
         "write name=1x3x224x224, or name=1:8:32x3x224x224 with min:opt:max");
  };
  std::vector<DimRange> out;
  if (text == "scalar") return out;
  size_t at = 0;
  while (true) {
    std::vector<int64_t> parts;
    do {
      int64_t v = 0;
      auto r = std::from_chars(text.data() + at, text.data() + text.size(), v);
      if (r.ec != std::errc() || v < 0) bad();
      parts.push_back(v);
      at = static_cast<size_t>(r.ptr - text.data());
    } while (at < text.size() && text[at] == ':' && ++at);
    if (parts.size() == 1)
      out.push_back({parts[0], parts[0], parts[0]});
    else if (parts.size() == 3 && parts[0] <= parts[1] && parts[1] <= parts[2])
      out.push_back({parts[0], parts[1], parts[2]});
    else
      bad();
    if (at == text.size()) return out;
    if (text[at] != 'x') bad();
    ++at;
  }
}

}  // namespace pelton::passes
