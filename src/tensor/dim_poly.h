// SPDX-License-Identifier: Apache-2.0
// The normal form of a symbolic dimension, for the files that make up Dim: a sum of products of atoms.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dim.h"

namespace pelton {

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
  void add(const Monomial& m, int64_t c);
};

// Arithmetic of sizes: a limit error on overflow, bad_shape for a division by zero.
int64_t checked_add(int64_t a, int64_t b);
int64_t checked_mul(int64_t a, int64_t b);
int64_t floor_div_int(int64_t a, int64_t b);
// The value of a call by the name of its function, except mod, which is no atom.
int64_t eval_call(std::string_view function, int64_t a, int64_t b);

}  // namespace pelton
