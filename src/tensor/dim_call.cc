// SPDX-License-Identifier: Apache-2.0
// Functions of two dimensions: worked out where both are known or one divides the other, else kept as a call.
#include <algorithm>

#include "tensor/dim_poly.h"

namespace pelton {

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
      if (!exact || (dc != -1 && c % dc != 0)) {  // -1 divides all, but c % -1 may not be asked
        exact = false;
        break;
      }
      quotient.add(left, floor_div_int(c, dc));
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

}  // namespace pelton
