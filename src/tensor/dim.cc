// SPDX-License-Identifier: Apache-2.0
// Dimensions as polynomials: their parts, their text, sums and products.
#include "tensor/dim.h"

#include <algorithm>
#include <cctype>

#include "tensor/dim_poly.h"

namespace pelton {

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

void Dim::Poly::add(const Monomial& m, int64_t c) {
  if (c == 0) return;
  auto [it, fresh] = terms.emplace(m, c);
  if (!fresh && (it->second = checked_add(it->second, c)) == 0) terms.erase(it);
  if (terms.size() > 256) fail(ErrorCode::limit, "a symbolic dimension has more than 256 terms");
}

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

}  // namespace pelton
