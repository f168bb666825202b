// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <cstdlib>
#include <unordered_map>

#include "ir/infer.h"
#include "ir/op.h"
#include "ir/text.h"

namespace pelton::ir {

// Recursive descent over the grammar in docs/formats.md. Bounded: text size, nesting, list lengths.
class TextParser {
 public:
  explicit TextParser(std::string_view text) : text_(text) {
    if (text.size() > (size_t{1} << 30)) fail(ErrorCode::limit, "graph text above 1 GiB");
  }

  Graph run() {
    Graph g = graph(nullptr);
    skip();
    if (at_ != text_.size()) bad("text after the graph");
    return g;
  }
  Type run_type() {
    Type t = type();
    skip();
    if (at_ != text_.size()) bad("text after the type");
    return t;
  }
  Attrs run_attrs() {
    Attrs out;
    skip();
    if (at_ != text_.size()) out = attr_list(Graph("attributes"));
    skip();
    if (at_ != text_.size()) bad("text after the attributes");
    return out;
  }

 private:
  using Labels = std::unordered_map<std::string, ValueId>;

  [[noreturn]] void bad(std::string_view expected) {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
      ++column;
      if (text_[i] == '\n') {
        ++line;
        column = 1;
      }
    }
    std::string near(text_.substr(std::min(at_, text_.size()), 24));
    fail(ErrorCode::bad_format,
         cat("graph text: ", expected, near.empty() ? ", found the end" : cat(" near '", near, "'")),
         cat("line ", line, ", column ", column));
  }
  void skip() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at_])))
        ++at_;
      else if (text_.substr(at_, 2) == "//")
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      else
        break;
    }
  }
  bool peek(char c) {
    skip();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    if (!peek(c)) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) bad(cat("expected '", c, "'"));
  }
  static bool word_char(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  }
  std::string_view peek_word() {
    skip();
    size_t end = at_;
    while (end < text_.size() && word_char(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }
  std::string word() {
    std::string_view w = peek_word();
    if (w.empty()) bad("expected a word");
    at_ += w.size();
    return std::string(w);
  }
  bool take_word(std::string_view w) {
    if (peek_word() != w) return false;
    at_ += w.size();
    return true;
  }
  void expect_word(std::string_view w) {
    if (!take_word(w)) bad(cat("expected '", w, "'"));
  }

  std::string text() {
    expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      char c = text_[at_++];
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ >= text_.size()) break;
      c = text_[at_++];
      if (c == 'n')
        out += '\n';
      else if (c == 'x') {
        unsigned v = 0;
        auto r = std::from_chars(text_.data() + at_, text_.data() + std::min(at_ + 2, text_.size()), v, 16);
        if (r.ptr != text_.data() + at_ + 2) bad("expected two hex digits");
        at_ += 2;
        out += static_cast<char>(v);
      } else
        out += c;
    }
    if (at_ >= text_.size()) bad("text without end");
    ++at_;
    return out;
  }

  // The characters of a number, NaN and infinities included.
  std::string_view number_text() {
    skip();
    size_t end = at_;
    if (end < text_.size() && (text_[end] == '-' || text_[end] == '+')) ++end;
    while (end < text_.size() &&
           (word_char(text_[end]) || ((text_[end] == '-' || text_[end] == '+') && (text_[end - 1] == 'e'))))
      ++end;
    if (end == at_) bad("expected a number");
    return text_.substr(at_, end - at_);
  }
  int64_t integer() {
    std::string_view t = number_text();
    int64_t v = 0;
    auto r = std::from_chars(t.data(), t.data() + t.size(), v);
    if (r.ec != std::errc() || r.ptr != t.data() + t.size()) bad("expected an integer");
    at_ += t.size();
    return v;
  }
  double real() {
    std::string_view t = number_text();
    double v = 0;
    auto r = std::from_chars(t.data(), t.data() + t.size(), v);
    if (r.ec != std::errc() || r.ptr != t.data() + t.size()) bad("expected a real number");
    at_ += t.size();
    return v;
  }
  template <class T, class F>
  std::vector<T> list(char open, char close, F&& each) {
    expect(open);
    std::vector<T> out;
    if (take(close)) return out;
    do out.push_back(each());
    while (take(','));
    expect(close);
    return out;
  }

  Dim dim() {
    // Up to the next ',' or ']' outside parentheses.
    skip();
    size_t end = at_;
    int depth = 0;
    while (end < text_.size()) {
      char c = text_[end];
      if (c == '(')
        ++depth;
      else if (c == ')' && --depth < 0)
        break;
      else if (depth == 0 && (c == ',' || c == ']' || c == '=' || c == '!' || c == '<' || c == '%' ||
                              c == '@' || c == '\n'))
        break;
      ++end;
    }
    std::string_view t = text_.substr(at_, end - at_);
    while (!t.empty() && t.back() == ' ') t.remove_suffix(1);
    Dim d = Dim::parse(t);
    at_ = end;
    return d;
  }
  Shape shape() {
    return list<Dim>('[', ']', [&] { return dim(); });
  }

  Type type(int depth = 0) {
    if (depth > 16) bad("a type nested deeper than 16");
    std::string w = word();
    if (w == "token") return Type::token();
    if (w == "seq" || w == "optional") {
      expect('<');
      Type element = type(depth + 1);
      if (w == "optional") {
        expect('>');
        return Type::optional(std::move(element));
      }
      if (!take(';')) {
        expect('>');
        return Type::sequence(std::move(element));
      }
      std::vector<Type> items;
      while (!take('>')) {
        if (!items.empty()) expect(',');
        items.push_back(type(depth + 1));
      }
      return Type::sequence_of(std::move(items), std::move(element));
    }
    auto dtype = dtype_from_name(w);
    if (!dtype) bad(cat("unknown type '", w, "'"));
    expect('[');
    if (take('?')) {
      expect(']');
      return Type::unranked(*dtype);
    }
    --at_;
    Type t = Type::tensor(*dtype, shape());
    if (at_ < text_.size() && text_[at_] == '{') {
      ++at_;
      std::string layout = word();
      if (layout == "nhwc")
        t.layout.kind = Layout::Kind::channels_last;
      else if (layout == "c4" || layout == "c8" || layout == "c16")
        t.layout = {Layout::Kind::blocked, static_cast<uint8_t>(std::atoi(layout.c_str() + 1))};
      else
        bad(cat("unknown layout '", layout, "'"));
      expect('}');
    }
    return t;
  }

  Tensor tensor() {
    expect('<');
    Type t = type();
    expect('>');
    auto dims = as_dims(t.shape);
    if (!t.is_tensor() || !t.ranked || !dims) bad("a tensor needs constant dims");
    if (element_count(*dims) > static_cast<int64_t>(text_.size()))
      bad("a tensor has fewer values than its type says");
    Tensor out = t.dtype == DType::string ? Tensor(t.dtype, *dims) : Tensor::zeros(t.dtype, *dims);
    expect('{');
    for (int64_t i = 0; i < out.count(); ++i) {
      if (i) expect(',');
      if (t.dtype == DType::string)
        out.mutable_strings()[static_cast<size_t>(i)] = text();
      else if (t.dtype == DType::boolean) {
        bool yes = take_word("true");
        if (!yes) expect_word("false");
        out.set_int(i, yes);
      } else if (t.dtype == DType::u64) {
        std::string_view n = number_text();
        uint64_t v = 0;
        auto r = std::from_chars(n.data(), n.data() + n.size(), v);
        if (r.ptr != n.data() + n.size()) bad("expected an integer");
        at_ += n.size();
        out.set_int(i, static_cast<int64_t>(v));
      } else if (is_float(t.dtype))
        out.set_double(i, real());
      else
        out.set_int(i, integer());
    }
    if (!take('}')) bad("expected '}' (as many values as the type says)");
    return out;
  }

  Attr attr(const Graph& outer) {
    skip();
    if (at_ >= text_.size()) bad("expected an attribute");
    if (peek('"')) return text();
    if (peek('[')) return list<int64_t>('[', ']', [&] { return integer(); });
    std::string_view w = peek_word();
    if (w == "graph") {
      if (++depth_ > 64) bad("sub-graphs nested deeper than 64");
      auto g = std::make_shared<Graph>(graph(&outer));
      --depth_;
      return GraphPtr(std::move(g));
    }
    if (take_word("reals")) return list<double>('[', ']', [&] { return real(); });
    if (take_word("texts")) return list<std::string>('[', ']', [&] { return text(); });
    if (take_word("dims")) return shape();
    if (take_word("tensor")) return tensor();
    if (take_word("true")) return true;
    if (take_word("false")) return false;
    if (auto t = dtype_from_name(w); t && !w.empty()) {
      at_ += w.size();
      return *t;
    }
    std::string_view n = number_text();
    if (n.find_first_of(".einf") == n.npos) return integer();
    return real();
  }

  Attrs attr_list(const Graph& outer) {
    Attrs attrs;
    do {
      std::string key = word();
      expect('=');
      if (!attrs.emplace(key, attr(outer)).second) bad(cat("attribute '", key, "' twice"));
    } while (take(','));
    return attrs;
  }

  ValueId use(const Labels& labels) {
    if (take_word("_")) return {};
    std::string l = label();
    auto it = labels.find(l);
    if (it == labels.end()) bad(cat("value ", l, " is not defined before its use"));
    return it->second;
  }
  std::string label() {
    expect('%');
    return cat("%", word());
  }
  void define(Graph& g, Labels& labels, const std::string& l, ValueId v) {
    if (!labels.emplace(l, v).second) bad(cat("value ", l, " is defined twice"));
    if (Dim::is_symbol_name(std::string_view(l).substr(1))) g.edit(v).name = l.substr(1);
  }
  void name_after_at(Graph& g, ValueId v) {
    if (take('@')) g.edit(v).name = text();
  }

  Fact fact() {
    Fact f;
    f.left = dim();
    if (take('%')) {
      f.relation = Fact::Relation::divisible;
      f.right = dim();
      expect('=');
      expect('=');
      if (integer() != 0) bad("expected 0");
    } else {
      skip();
      std::string_view r = text_.substr(at_, 2);
      if (r == "==")
        f.relation = Fact::Relation::equal;
      else if (r == "!=")
        f.relation = Fact::Relation::not_equal;
      else if (r == "<=")
        f.relation = Fact::Relation::at_most;
      else
        bad("expected ==, != or <=");
      at_ += 2;
      f.right = dim();
    }
    if (take('@')) f.reason = text();
    return f;
  }

  Graph graph(const Graph* outer) {
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
      if (take_word("symbol")) {
        std::string symbol = word();
        if (!Dim::is_symbol_name(symbol)) bad("expected a symbol");
        Range r;
        expect_word("in");
        expect('[');
        r.min = integer();
        expect(',');
        r.max = integer();
        expect(']');
        g.symbols->ranges[symbol] = r;
        if (symbol[0] == 'u' && symbol.size() > 1)
          g.symbols->next_fresh =
              std::max<uint64_t>(g.symbols->next_fresh, std::strtoull(symbol.c_str() + 1, nullptr, 10) + 1);
      } else if (take_word("check"))
        g.checks.push_back(fact());
      else if (take_word("guard"))
        g.guards.push_back(fact());
      else if (take_word("slot"))
        slot(g, labels);
      else if (take_word("next")) {
        ValueId old_value = use(labels);
        expect('=');
        ValueId next = use(labels);
        bool found = false;
        for (Slot& s : g.slots)
          if (s.old_value == old_value) {
            s.next = next;
            found = true;
          }
        if (!found) bad("next names no slot");
      } else if (peek_word() == "must" || peek_word() == "may") {
        Alias a;
        a.must = word() == "must";
        expect_word("alias");
        expect_word("output");
        a.output = static_cast<uint32_t>(integer());
        expect_word("input");
        a.input = static_cast<uint32_t>(integer());
        g.aliases.push_back(a);
      } else
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

  void slot(Graph& g, Labels& labels) {
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

  void node(Graph& g, Labels& labels) {
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
  void reconcile(Graph& g, ValueId v, const Type& written) {
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

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

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
