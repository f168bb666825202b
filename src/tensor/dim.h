// SPDX-License-Identifier: Apache-2.0
// Symbolic dimensions: integers or polynomials over named symbols, in one normal form, so that structural
// equality is the first test of equality. Division, minimum, maximum and broadcasting are
// opaque atoms.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace pelton {

using Dims = std::vector<int64_t>;              // concrete sizes
enum class Tri : uint8_t { no, yes, unknown };  // unknown is never treated as yes

// Inclusive; both ends may be open.
struct Range {
  int64_t min = 0;
  int64_t max = INT64_MAX;
  bool operator==(const Range&) const = default;
};
using SymbolRanges = std::map<std::string, Range, std::less<>>;
using SymbolValues = std::map<std::string, int64_t, std::less<>>;

class Dim {
 public:
  Dim(int64_t constant = 0) : constant_(constant) {}  // NOLINT: integers are dims
  static Dim symbol(std::string_view name);           // [A-Za-z_][A-Za-z0-9_.]*, else bad_name
  static bool is_symbol_name(std::string_view name);
  static Dim floor_div(const Dim& a, const Dim& b);  // rounds towards minus infinity
  static Dim ceil_div(const Dim& a, const Dim& b) { return -floor_div(-a, b); }
  static Dim mod(const Dim& a, const Dim& b);  // sign of b
  static Dim min(const Dim& a, const Dim& b);
  static Dim max(const Dim& a, const Dim& b);
  // Size of two broadcast dims: equal, or one of them 1; evaluating any other pair is a bad_shape error.
  static Dim broadcast(const Dim& a, const Dim& b);
  static Dim apply(std::string_view function, const Dim& a, const Dim& b);  // one of the above by name
  // Text of str(): "2*N + 1", "floordiv(N + 1, 2)"; bad_format on anything else.
  static Dim parse(std::string_view text);

  bool is_const() const { return !poly_; }
  int64_t value() const;  // is_const() only
  std::optional<int64_t> constant() const { return is_const() ? std::optional(constant_) : std::nullopt; }
  std::optional<std::string> as_symbol() const;  // the name if the dim is one bare symbol
  std::string str() const;

  Dim operator-() const;
  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  bool operator==(const Dim& other) const;  // same normal form (not: provably equal)
  bool operator<(const Dim& other) const;   // any total order, for containers

  void collect_symbols(std::set<std::string>& into) const;
  // Every symbol must have a value; bad_shape names the one that has none. Overflow is refused.
  int64_t eval(const SymbolValues& values) const;
  Dim substitute(const std::map<std::string, Dim, std::less<>>& replacements) const;
  Range range(const SymbolRanges& ranges) const;  // conservative bounds

  struct Poly;  // private to dim_poly.h

 private:
  explicit Dim(std::shared_ptr<const Poly> poly) : poly_(std::move(poly)) {}
  static Dim from(Poly&& poly);
  Poly expand() const;
  static Dim call(const char* function, const Dim& a, const Dim& b);

  int64_t constant_ = 0;
  std::shared_ptr<const Poly> poly_;  // null for a constant
};

using Shape = std::vector<Dim>;

Tri equal(const Dim& a, const Dim& b, const SymbolRanges& ranges);
Tri at_most(const Dim& a, const Dim& b, const SymbolRanges& ranges);
Tri divisible_by(const Dim& a, int64_t k, const SymbolRanges& ranges);

Dim element_count(const Shape& shape);
int64_t element_count(const Dims& dims);  // limit error on overflow or a negative size
Dims eval(const Shape& shape, const SymbolValues& values);
std::optional<Dims> as_dims(const Shape& shape);  // when every dim is an integer
Shape to_shape(const Dims& dims);

}  // namespace pelton
