// SPDX-License-Identifier: Apache-2.0
#include "tensor/dim.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace pelton {
namespace {

int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) fail(ErrorCode::limit, cat("dimension overflow: ", a, " + ", b));
  return r;
}
int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) fail(ErrorCode::limit, cat("dimension overflow: ", a, " * ", b));
  return r;
}
int64_t floor_div_int(int64_t a, int64_t b) {
  if (b == 0) fail(ErrorCode::bad_shape, "a dimension is divided by zero");
  if (b == -1) return checked_mul(a, -1);
  int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
int64_t eval_call(std::string_view function, int64_t a, int64_t b) {
  if (function == "floordiv") return floor_div_int(a, b);
  if (function == "min") return std::min(a, b);
  if (function == "max") return std::max(a, b);
  if (a != b && a != 1 && b != 1)
    fail(ErrorCode::bad_shape, cat("sizes ", a, " and ", b, " do not broadcast"));
  return a == 1 ? b : a;
}
int64_t saturating(__int128 v) {
  if (v > INT64_MAX) return INT64_MAX;
  if (v < INT64_MIN) return INT64_MIN;
  return static_cast<int64_t>(v);
}

}  // namespace

// An atom is a symbol (args empty) or a call; `text` is its canonical spelling and orders it.
struct Atom {
  std::string text;
  std::string function;
  std::vector<Dim> args;
  bool operator<(const Atom& o) const { return text < o.text; }
  bool operator==(const Atom& o) const { return text == o.text; }
};
using Monomial = std::vector<Atom>;  // sorted; repeated for powers; empty is the constant term

struct Dim::Poly {
  std::map<Monomial, int64_t> terms;  // no zero coefficients
  void add(const Monomial& m, int64_t c) {
    if (c == 0) return;
    auto [it, fresh] = terms.emplace(m, c);
    if (!fresh && (it->second = checked_add(it->second, c)) == 0) terms.erase(it);
    if (terms.size() > 256) fail(ErrorCode::limit, "a symbolic dimension has more than 256 terms");
  }
};

Dim Dim::from(Poly&& poly) {
  if (poly.terms.empty()) return Dim(0);
  if (poly.terms.size() == 1 && poly.terms.begin()->first.empty()) return Dim(poly.terms.begin()->second);
  return Dim(std::make_shared<const Poly>(std::move(poly)));
}

Dim::Poly Dim::expand() const {
  if (poly_) return *poly_;
  Poly p;
  p.add({}, constant_);
  return p;
}

bool Dim::is_symbol_name(std::string_view name) {
  if (name.empty() || name.size() > 256) return false;
  if (!std::isalpha(static_cast<unsigned char>(name[0])) && name[0] != '_') return false;
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
}

Dim Dim::symbol(std::string_view name) {
  if (!is_symbol_name(name)) fail(ErrorCode::bad_name, cat("'", name, "' is not a dimension name"));
  Poly p;
  p.add({Atom{std::string(name), {}, {}}}, 1);
  return from(std::move(p));
}

int64_t Dim::value() const {
  PELTON_CHECK(is_const(), str(), " is symbolic");
  return constant_;
}

std::optional<std::string> Dim::as_symbol() const {
  if (!poly_ || poly_->terms.size() != 1) return std::nullopt;
  const auto& [m, c] = *poly_->terms.begin();
  if (c != 1 || m.size() != 1 || !m[0].function.empty()) return std::nullopt;
  return m[0].text;
}

std::string Dim::str() const {
  if (!poly_) return cat(constant_);
  std::string out;
  // The constant term sorts first (empty monomial); print it last, as people write it.
  auto print = [&](const Monomial& m, int64_t c) {
    if (!out.empty())
      append(out, c < 0 ? " - " : " + ");
    else if (c < 0)
      append(out, "-");
    uint64_t magnitude = c < 0 ? 0 - static_cast<uint64_t>(c) : static_cast<uint64_t>(c);
    if (m.empty() || magnitude != 1) append(out, magnitude);
    for (size_t i = 0; i < m.size(); ++i) {
      if (i || magnitude != 1) out.push_back('*');
      append(out, m[i].text);
    }
  };
  for (const auto& [m, c] : poly_->terms)
    if (!m.empty()) print(m, c);
  for (const auto& [m, c] : poly_->terms)
    if (m.empty()) print(m, c);
  return out;
}

Dim Dim::operator-() const {
  return Dim(-1) * *this;
}
Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return Dim(checked_add(a.constant_, b.constant_));
  Dim::Poly p = a.expand();
  for (const auto& [m, c] : b.expand().terms) p.add(m, c);
  return Dim::from(std::move(p));
}
Dim operator-(const Dim& a, const Dim& b) {
  return a + (-b);
}
Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return Dim(checked_mul(a.constant_, b.constant_));
  Dim::Poly p, x = a.expand(), y = b.expand();
  for (const auto& [m, c] : x.terms)
    for (const auto& [n, d] : y.terms) {
      Monomial product(m);
      product.insert(product.end(), n.begin(), n.end());
      std::sort(product.begin(), product.end());
      if (product.size() > 32) fail(ErrorCode::limit, "a symbolic dimension has a degree above 32");
      p.add(product, checked_mul(c, d));
    }
  return Dim::from(std::move(p));
}

bool Dim::operator==(const Dim& o) const {
  if (is_const() || o.is_const()) return is_const() && o.is_const() && constant_ == o.constant_;
  return poly_ == o.poly_ || poly_->terms == o.poly_->terms;
}
bool Dim::operator<(const Dim& o) const {
  if (is_const() != o.is_const()) return is_const();
  return is_const() ? constant_ < o.constant_ : poly_->terms < o.poly_->terms;
}

Dim Dim::call(const char* function, const Dim& a, const Dim& b) {
  Atom atom{cat(function, "(", a.str(), ", ", b.str(), ")"), function, {a, b}};
  if (atom.text.size() > 4096) fail(ErrorCode::limit, "a symbolic dimension is too deep");
  Poly p;
  p.add({std::move(atom)}, 1);
  return from(std::move(p));
}

Dim Dim::floor_div(const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) return floor_div_int(a.constant_, b.constant_);
  if (b == Dim(1)) return a;
  if (a == b) return Dim(1);
  if (b.is_const() && b.constant_ > 0) {
    // Terms divisible by b leave the division: floor((k*b*x + r) / b) = k*x + floor(r / b).
    Poly whole, rest;
    for (const auto& [m, c] : a.expand().terms) {
      if (c % b.constant_ == 0)
        whole.add(m, c / b.constant_);
      else
        rest.add(m, c);
    }
    if (!whole.terms.empty()) {
      Dim r = from(std::move(rest));
      return from(std::move(whole)) + floor_div(r, b);
    }
    return call("floordiv", a, b);
  }
  if (!b.is_const() && b.poly_->terms.size() == 1) {
    // Exact division by one monomial when it divides every term.
    const auto& [dm, dc] = *b.poly_->terms.begin();
    Poly quotient;
    bool exact = true;
    for (const auto& [m, c] : a.expand().terms) {
      Monomial left(m);
      for (const Atom& atom : dm) {
        auto it = std::find(left.begin(), left.end(), atom);
        if (it == left.end()) {
          exact = false;
          break;
        }
        left.erase(it);
      }
      if (!exact || c % dc != 0) {
        exact = false;
        break;
      }
      quotient.add(left, c / dc);
    }
    if (exact) return from(std::move(quotient));
  }
  return call("floordiv", a, b);
}

Dim Dim::mod(const Dim& a, const Dim& b) {
  return a - b * floor_div(a, b);
}

Dim Dim::min(const Dim& a, const Dim& b) {
  if (a == b) return a;
  Dim difference = a - b;
  if (difference.is_const()) return difference.constant_ < 0 ? a : b;
  return a < b ? call("min", a, b) : call("min", b, a);
}
Dim Dim::max(const Dim& a, const Dim& b) {
  if (a == b) return a;
  Dim difference = a - b;
  if (difference.is_const()) return difference.constant_ > 0 ? a : b;
  return a < b ? call("max", a, b) : call("max", b, a);
}

Dim Dim::broadcast(const Dim& a, const Dim& b) {
  if (a == b || b == Dim(1)) return a;
  if (a == Dim(1)) return b;
  if (a.is_const() && b.is_const()) return apply("broadcast", a, b);
  return a < b ? call("broadcast", a, b) : call("broadcast", b, a);
}

// The one place that knows the functions by name.
Dim Dim::apply(std::string_view function, const Dim& a, const Dim& b) {
  if (function == "broadcast" && a.is_const() && b.is_const())
    return eval_call(function, a.value(), b.value());
  if (function == "floordiv") return floor_div(a, b);
  if (function == "mod") return mod(a, b);
  if (function == "min") return min(a, b);
  if (function == "max") return max(a, b);
  if (function == "broadcast") return broadcast(a, b);
  fail(ErrorCode::bad_format, cat("unknown dimension function '", function, "'"));
}

void Dim::collect_symbols(std::set<std::string>& into) const {
  if (!poly_) return;
  for (const auto& [m, c] : poly_->terms)
    for (const Atom& atom : m) {
      if (atom.function.empty()) into.insert(atom.text);
      for (const Dim& arg : atom.args) arg.collect_symbols(into);
    }
}

int64_t Dim::eval(const SymbolValues& values) const {
  if (!poly_) return constant_;
  int64_t sum = 0;
  for (const auto& [m, c] : poly_->terms) {
    int64_t product = c;
    for (const Atom& atom : m) {
      int64_t v;
      if (atom.function.empty()) {
        auto it = values.find(atom.text);
        if (it == values.end()) fail(ErrorCode::bad_shape, cat("dimension '", atom.text, "' has no value"));
        v = it->second;
      } else {
        int64_t a = atom.args[0].eval(values), b = atom.args[1].eval(values);
        v = eval_call(atom.function, a, b);
      }
      product = checked_mul(product, v);
    }
    sum = checked_add(sum, product);
  }
  return sum;
}

Dim Dim::substitute(const std::map<std::string, Dim, std::less<>>& replacements) const {
  if (!poly_) return *this;
  Dim sum(0);
  for (const auto& [m, c] : poly_->terms) {
    Dim product(c);
    for (const Atom& atom : m) {
      if (atom.function.empty()) {
        auto it = replacements.find(atom.text);
        product = product * (it == replacements.end() ? symbol(atom.text) : it->second);
      } else {
        product = product * apply(atom.function, atom.args[0].substitute(replacements),
                                  atom.args[1].substitute(replacements));
      }
    }
    sum = sum + product;
  }
  return sum;
}

Range Dim::range(const SymbolRanges& ranges) const {
  if (!poly_) return {constant_, constant_};
  using Wide = __int128;
  Wide low = 0, high = 0;
  bool open_low = false, open_high = false;
  for (const auto& [m, c] : poly_->terms) {
    Range term{1, 1};
    for (const Atom& atom : m) {
      Range r;
      if (atom.function.empty()) {
        auto it = ranges.find(atom.text);
        r = it == ranges.end() ? Range{} : it->second;
      } else {
        Range a = atom.args[0].range(ranges), b = atom.args[1].range(ranges);
        if (atom.function == "floordiv") {
          if (b.min >= 0) {  // a division by 0 has no value, so the divisor is at least 1
            b.min = std::max<int64_t>(b.min, 1);
            b.max = std::max<int64_t>(b.max, 1);
            r.min = a.min == INT64_MIN ? INT64_MIN : floor_div_int(a.min, a.min >= 0 ? b.max : b.min);
            r.max = a.max == INT64_MAX ? INT64_MAX : floor_div_int(a.max, a.max >= 0 ? b.min : b.max);
          } else {
            r = {INT64_MIN, INT64_MAX};
          }
        } else if (atom.function == "min") {
          r = {std::min(a.min, b.min), std::min(a.max, b.max)};
        } else if (atom.function == "broadcast") {
          r = {std::min(a.min, b.min), std::max(a.max, b.max)};
        } else {
          r = {std::max(a.min, b.min), std::max(a.max, b.max)};
        }
      }
      Wide corners[4] = {Wide(term.min) * r.min, Wide(term.min) * r.max, Wide(term.max) * r.min,
                         Wide(term.max) * r.max};
      term = {saturating(*std::min_element(corners, corners + 4)),
              saturating(*std::max_element(corners, corners + 4))};
    }
    Wide a = Wide(term.min) * c, b = Wide(term.max) * c;
    bool a_open = term.min == INT64_MIN, b_open = term.max == INT64_MAX;
    if (c < 0) {
      std::swap(a, b);
      std::swap(a_open, b_open);
    }
    low += a;
    high += b;
    open_low |= a_open;
    open_high |= b_open;
  }
  return {open_low ? INT64_MIN : saturating(low), open_high ? INT64_MAX : saturating(high)};
}

namespace {

// expr = term (('+'|'-') term)*; term = factor ('*' factor)*; factor = integer | name | name(expr, expr) |
// -factor
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}
  Dim run() {
    Dim d = expr(0);
    skip();
    if (at_ != text_.size()) bad();
    return d;
  }

 private:
  [[noreturn]] void bad() {
    fail(ErrorCode::bad_format, cat("'", text_.substr(0, 200), "' is not a dimension"),
         cat("character ", at_), "write for example 128, N or 2*N + 1");
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Dim expr(int depth) {
    if (depth > 64) fail(ErrorCode::limit, "a dimension is nested deeper than 64");
    Dim sum = term(depth);
    for (;;) {
      if (take('+'))
        sum = sum + term(depth);
      else if (take('-'))
        sum = sum - term(depth);
      else
        return sum;
    }
  }
  Dim term(int depth) {
    Dim product = factor(depth);
    while (take('*')) product = product * factor(depth);
    return product;
  }
  Dim factor(int depth) {
    if (depth > 64) fail(ErrorCode::limit, "a dimension is nested deeper than 64");
    if (take('-')) return -factor(depth + 1);
    skip();
    if (at_ >= text_.size()) bad();
    size_t begin = at_;
    if (std::isdigit(static_cast<unsigned char>(text_[at_]))) {
      int64_t v = 0;
      auto r = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
      if (r.ec != std::errc()) bad();
      at_ = static_cast<size_t>(r.ptr - text_.data());
      return Dim(v);
    }
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    std::string_view word = text_.substr(begin, at_ - begin);
    if (!Dim::is_symbol_name(word)) bad();
    if (!take('(')) return Dim::symbol(word);
    Dim a = expr(depth + 1);
    if (!take(',')) bad();
    Dim b = expr(depth + 1);
    if (!take(')')) bad();
    return Dim::apply(word, a, b);
  }
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Dim Dim::parse(std::string_view text) {
  return Parser(text).run();
}

Tri equal(const Dim& a, const Dim& b, const SymbolRanges& ranges) {
  if (a == b) return Tri::yes;
  Range r = (a - b).range(ranges);
  if (r.min == 0 && r.max == 0) return Tri::yes;
  return r.min > 0 || r.max < 0 ? Tri::no : Tri::unknown;
}

Tri at_most(const Dim& a, const Dim& b, const SymbolRanges& ranges) {
  Range r = (a - b).range(ranges);
  if (r.max <= 0) return Tri::yes;
  return r.min > 0 ? Tri::no : Tri::unknown;
}

Tri divisible_by(const Dim& a, int64_t k, const SymbolRanges&) {
  if (k == 1 || k == -1) return Tri::yes;
  if (k == 0) return Tri::unknown;
  if (a.is_const()) return a.value() % k == 0 ? Tri::yes : Tri::no;
  Dim r = Dim::mod(a, k < 0 ? -k : k);
  if (r.is_const()) return r.value() == 0 ? Tri::yes : Tri::no;
  return Tri::unknown;
}

Dim element_count(const Shape& shape) {
  Dim n(1);
  for (const Dim& d : shape) n = n * d;
  return n;
}

int64_t element_count(const Dims& dims) {
  // A zero anywhere makes the product zero, whatever the others are.
  int64_t n = 1;
  bool zero = false;
  for (int64_t d : dims) {
    if (d < 0) fail(ErrorCode::bad_shape, cat("negative dimension in ", dims));
    zero |= d == 0;
  }
  if (zero) return 0;
  for (int64_t d : dims)
    if (__builtin_mul_overflow(n, d, &n)) fail(ErrorCode::limit, cat("shape ", dims, " is too large"));
  return n;
}

Dims eval(const Shape& shape, const SymbolValues& values) {
  Dims out;
  out.reserve(shape.size());
  for (const Dim& d : shape) out.push_back(d.eval(values));
  return out;
}

std::optional<Dims> as_dims(const Shape& shape) {
  Dims out;
  for (const Dim& d : shape) {
    if (!d.is_const()) return std::nullopt;
    out.push_back(d.value());
  }
  return out;
}

Shape to_shape(const Dims& dims) {
  return Shape(dims.begin(), dims.end());
}

}  // namespace pelton
