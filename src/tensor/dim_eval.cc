// SPDX-License-Identifier: Apache-2.0
// What a dimension is for given symbols: its value, its bounds, its form with others in their place.
#include <algorithm>

#include "tensor/dim_poly.h"

namespace pelton {

namespace {

// Far beyond any size, and 256 terms of it still fit 128 bits.
constexpr __int128 kFar = __int128{1} << 110;

int64_t saturating(__int128 v) {
  if (v > INT64_MAX) return INT64_MAX;
  if (v < INT64_MIN) return INT64_MIN;
  return static_cast<int64_t>(v);
}

}  // namespace

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
    low += std::clamp(a, -kFar, kFar);
    high += std::clamp(b, -kFar, kFar);
    open_low |= a_open || a < -kFar;
    open_high |= b_open || b > kFar;
  }
  return {open_low ? INT64_MIN : saturating(low), open_high ? INT64_MAX : saturating(high)};
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
  if (k == 0 || k == INT64_MIN) return Tri::unknown;
  if (a.is_const()) return a.value() % k == 0 ? Tri::yes : Tri::no;
  Dim r = Dim::mod(a, k < 0 ? -k : k);
  if (r.is_const()) return r.value() == 0 ? Tri::yes : Tri::no;
  return Tri::unknown;
}

}  // namespace pelton
