// SPDX-License-Identifier: Apache-2.0
// The values of the text form: dims, types, tensors, attributes, facts.
#include <cstdlib>

#include "ir/text_parser.h"
#include "tensor/dim_scan.h"

namespace pelton::ir {

namespace {

// Whether an integer type other than u64 has the value.
bool holds(DType t, int64_t v) {
  if (t == DType::i64) return true;
  const int64_t values = int64_t{1} << bits(t);
  return is_unsigned_int(t) ? v >= 0 && v < values : v >= -values / 2 && v < values / 2;
}

}  // namespace

Dim TextParser::dim() {
  skip();
  return scan_dim(text_, at_, ",]=!<%@\n");
}

Shape TextParser::shape() {
  return list<Dim>('[', ']', [&] { return dim(); });
}

Type TextParser::type(int depth) {
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

Tensor TextParser::tensor() {
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
      out.set_int(i, static_cast<int64_t>(unsigned_integer()));
    } else if (is_float(t.dtype)) {
      out.set_double(i, real());
    } else {
      const int64_t v = integer();
      if (!holds(t.dtype, v)) bad(cat(v, " is no value of type ", name(t.dtype)));
      out.set_int(i, v);
    }
  }
  if (!take('}')) bad("expected '}' (as many values as the type says)");
  return out;
}

Attr TextParser::attr(const Graph& outer) {
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

Attrs TextParser::attr_list(const Graph& outer) {
  Attrs attrs;
  do {
    std::string key = word();
    expect('=');
    if (!attrs.emplace(key, attr(outer)).second) bad(cat("attribute '", key, "' twice"));
  } while (take(','));
  return attrs;
}

Fact TextParser::fact() {
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

}  // namespace pelton::ir
