// SPDX-License-Identifier: Apache-2.0
// The graphs of the text form: inputs, slots, nodes, results, and what is known of sizes.
#include <algorithm>
#include <cstdlib>

#include "ir/infer.h"
#include "ir/op.h"
#include "ir/text_parser.h"

namespace pelton::ir {

Graph TextParser::run() {
  Graph g = graph(nullptr);
  skip();
  if (at_ != text_.size()) bad("text after the graph");
  return g;
}

Type TextParser::run_type() {
  Type t = type();
  skip();
  if (at_ != text_.size()) bad("text after the type");
  return t;
}

Attrs TextParser::run_attrs() {
  Attrs out;
  skip();
  if (at_ != text_.size()) out = attr_list(Graph("attributes"));
  skip();
  if (at_ != text_.size()) bad("text after the attributes");
  return out;
}

Graph TextParser::graph(const Graph* outer) {
  expect_word("graph");
  Graph g(text());
  if (outer) g.symbols = outer->symbols;
  Labels labels;
  expect('(');
  if (!take(')')) {
    do {
      std::string l = label();
      expect(':');
      ValueId v = g.add_input(type());
      define(g, labels, l, v);
      name_after_at(g, v);
    } while (take(','));
    expect(')');
  }
  expect('{');
  for (;;) {
    if (take_word("return")) break;
    if (take_word("symbol"))
      symbol(g);
    else if (take_word("check"))
      g.checks.push_back(fact());
    else if (take_word("guard"))
      g.guards.push_back(fact());
    else if (take_word("slot"))
      slot(g, labels);
    else if (take_word("next"))
      next(g, labels);
    else if (peek_word() == "must" || peek_word() == "may")
      alias(g);
    else
      node(g, labels);
  }
  if (!peek('}')) {
    do {
      ValueId v = use(labels);
      g.add_output(v, take('@') ? text() : v ? g[v].name : std::string());
    } while (take(','));
  }
  expect('}');
  return g;
}

void TextParser::symbol(Graph& g) {
  std::string symbol = word();
  if (!Dim::is_symbol_name(symbol)) bad("expected a symbol");
  Range r;
  expect_word("in");
  expect('[');
  r.min = integer();
  expect(',');
  r.max = integer();
  expect(']');
  if (r.min > r.max) bad(cat("the range of '", symbol, "' is empty"));
  g.symbols->ranges[symbol] = r;
  // Symbols made by inference are u0, u1, ...; the next must be a new one.
  if (symbol[0] == 'u' && symbol.size() > 1)
    g.symbols->next_fresh =
        std::max<uint64_t>(g.symbols->next_fresh, std::strtoull(symbol.c_str() + 1, nullptr, 10) + 1);
}

void TextParser::next(Graph& g, const Labels& labels) {
  ValueId old_value = use(labels);
  expect('=');
  ValueId value = use(labels);
  bool found = false;
  for (Slot& s : g.slots)
    if (s.old_value == old_value) {
      s.next = value;
      found = true;
    }
  if (!found) bad("next names no slot");
}

uint32_t TextParser::position() {
  const uint64_t v = unsigned_integer();
  if (v > UINT32_MAX) bad(cat("there is no input or output ", v));
  return static_cast<uint32_t>(v);
}

void TextParser::alias(Graph& g) {
  Alias a;
  a.must = word() == "must";
  expect_word("alias");
  expect_word("output");
  a.output = position();
  expect_word("input");
  a.input = position();
  g.aliases.push_back(a);
}

void TextParser::slot(Graph& g, Labels& labels) {
  std::string l = label();
  Slot s;
  std::string kind_word = word();
  bool known = false;
  for (SlotKind k :
       {SlotKind::parameter, SlotKind::optimizer, SlotKind::cache, SlotKind::statistic, SlotKind::counter})
    if (name(k) == kind_word) {
      s.kind = k;
      known = true;
    }
  if (!known) bad(cat("unknown slot kind '", kind_word, "'"));
  s.name = text();
  expect(':');
  s.type = type();
  if (take_word("tied")) s.tied_to = text();
  if (take('=')) {
    expect_word("tensor");
    s.initial = tensor();
  }
  const std::string name = s.name;
  const ValueId value = g.add_slot(std::move(s));
  define(g, labels, l, value);
  g.edit(value).name = name;  // as everywhere: the value of a slot bears its name, whatever its label
}

void TextParser::node(Graph& g, Labels& labels) {
  std::vector<std::string> results;
  if (peek('%')) {
    do results.push_back(label());
    while (take(','));
    expect('=');
  }
  size_t op_at = at_;
  std::string op_name = word();
  const OpDef* def = find_op(op_name);
  if (!def) {
    at_ = op_at;
    (void)op(op_name);
  }
  auto inputs = list<ValueId>('(', ')', [&] { return use(labels); });
  Attrs attrs;
  if (take('{') && !take('}')) {
    attrs = attr_list(g);
    expect('}');
  }
  std::vector<Type> types;
  if (!results.empty()) {
    expect(':');
    do types.push_back(type());
    while (take(','));
    if (types.size() != results.size()) bad("as many types as results");
  }
  std::string node_name;
  if (take('@')) node_name = text();
  NodeId id = g.add_node(*def, std::move(inputs), std::move(attrs), results.size(), std::move(node_name));
  // Sizes that appear only in a run keep the written symbols.
  for (size_t i = 0; i < results.size(); ++i) g.edit(g[id].outputs[i]).type = types[i];
  infer(g, id);
  for (size_t i = 0; i < results.size(); ++i) {
    ValueId v = g[id].outputs[i];
    reconcile(g, v, types[i]);
    define(g, labels, results[i], v);
  }
}

// Inference may have invented other symbols, and layouts are chosen by passes: the written type holds if it
// has the inferred dtype and rank and no integer dim contradicts.
void TextParser::reconcile(Graph& g, ValueId v, const Type& written) {
  Type inferred = g.type(v);
  bool same = inferred.kind == written.kind;
  if (same && written.is_tensor()) {
    same = inferred.dtype == written.dtype && inferred.ranked == written.ranked &&
           inferred.rank() == written.rank();
    for (size_t i = 0; same && i < written.shape.size(); ++i)
      same = equal(inferred.shape[i], written.shape[i], g.symbols->ranges) != Tri::no;
  }
  if (!same) bad(cat("result is written as ", written.str(), " but is ", inferred.str()));
  g.edit(v).type = written;
}

ValueId TextParser::use(const Labels& labels) {
  if (take_word("_")) return {};
  std::string l = label();
  auto it = labels.find(l);
  if (it == labels.end()) bad(cat("value ", l, " is not defined before its use"));
  return it->second;
}

std::string TextParser::label() {
  expect('%');
  return cat("%", word());
}

void TextParser::define(Graph& g, Labels& labels, const std::string& l, ValueId v) {
  if (!labels.emplace(l, v).second) bad(cat("value ", l, " is defined twice"));
  if (Dim::is_symbol_name(std::string_view(l).substr(1))) g.edit(v).name = l.substr(1);
}

void TextParser::name_after_at(Graph& g, ValueId v) {
  if (take('@')) g.edit(v).name = text();
}

Graph parse_graph(std::string_view text) {
  return TextParser(text).run();
}
Type parse_type(std::string_view text) {
  return TextParser(text).run_type();
}
Attrs parse_attrs(std::string_view text) {
  return TextParser(text).run_attrs();
}

}  // namespace pelton::ir
