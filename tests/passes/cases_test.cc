// SPDX-License-Identifier: Apache-2.0
// Before/after text of every pass. tests/passes/cases/<pass>.txt holds cases:
//   === what the case shows
//   graph ... (before)
//   ---
//   graph ... (after), or the word "same"
// Both sides must compute the same values on random inputs, and a second application must change nothing.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "base/file.h"
#include "interp/interpreter.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/absorb.h"
#include "passes/composites.h"
#include "passes/cse.h"
#include "passes/fold.h"
#include "passes/fold_norm.h"
#include "passes/fusion.h"
#include "passes/movement.h"
#include "passes/precision.h"
#include "passes/rewrite.h"
#include "passes/siblings.h"
#include "passes/simplify.h"
#include "passes/static_shape.h"
#include "passes/tie.h"

using namespace pelton;
using namespace pelton::ir;

namespace {

const std::map<std::string, std::function<bool(Graph&)>>& passes_by_name() {
  static const passes::Context c;
  static const std::map<std::string, std::function<bool(Graph&)>> table = {
      {"simplify", [](Graph& g) { return passes::simplify(g, c); }},
      {"movement", [](Graph& g) { return passes::movement(g, c); }},
      {"cse", [](Graph& g) { return passes::cse(g, c); }},
      {"fold", [](Graph& g) { return passes::fold(g, c); }},
      {"fold_norm", [](Graph& g) { return passes::fold_norm(g, c); }},
      {"composites", [](Graph& g) { return passes::composites(g, c); }},
      {"static_shape", [](Graph& g) { return passes::static_shape(g, c); }},
      {"absorb", [](Graph& g) { return passes::absorb(g, c); }},
      {"tie", [](Graph& g) { return passes::tie(g, c); }},
      {"siblings", [](Graph& g) { return passes::siblings(g, c); }},
      {"fusion", [](Graph& g) { return passes::fusion(g, c); }},
      {"precision", [](Graph& g) { return passes::precision(g, "bf16", c); }},
  };
  return table;
}

struct Case {
  std::string name, before, after;
};
std::vector<Case> read_cases(const std::string& path) {
  std::string text = read_file(path);
  std::vector<Case> cases;
  size_t at = text.find("=== ");
  while (at != text.npos) {
    size_t next = text.find("\n=== ", at);
    std::string block = text.substr(at + 4, next == text.npos ? text.npos : next - at - 3);
    size_t line = block.find('\n'), split = block.find("\n---\n");
    REQUIRE_MESSAGE(split != block.npos, path);
    cases.push_back({block.substr(0, line), block.substr(line + 1, split - line), block.substr(split + 5)});
    at = next == text.npos ? next : next + 1;
  }
  return cases;
}

// Values for the inputs: sizes of symbols are 3, numbers are small and of both signs.
std::vector<HostValue> make_inputs(const Graph& g, uint32_t seed) {
  SymbolValues sizes;
  for (const auto& [symbol, range] : g.symbols->ranges)
    sizes[symbol] = std::max<int64_t>(range.min, std::min<int64_t>(3, range.max));
  std::vector<HostValue> out;
  uint32_t x = seed;
  for (ValueId v : g.inputs) {
    const Type& t = g.type(v);
    Tensor value = Tensor::zeros(t.dtype, eval(t.shape, sizes));
    for (int64_t i = 0; i < value.count(); ++i) {
      x = 1664525u * x + 1013904223u;
      double u = (x >> 8) / 16777216.0;
      if (t.dtype == DType::boolean)
        value.set_int(i, u > 0.5);
      else if (is_int(t.dtype))
        value.set_int(i, static_cast<int64_t>(u * 3));
      else
        value.set_double(i, 4 * u - 2);
    }
    out.emplace_back(value);
  }
  return out;
}

void check_same_values(const Graph& a, const Graph& b, double tolerance) {
  for (uint32_t seed : {1u, 2u}) {
    auto inputs = make_inputs(a, seed);
    auto x = interp::run(a, inputs).outputs, y = interp::run(b, inputs).outputs;
    REQUIRE(x.size() == y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      REQUIRE(x[i].tensor.str() == y[i].tensor.str());
      int64_t wrong = 0;
      for (int64_t k = 0; k < x[i].tensor.count(); ++k) {
        double want = x[i].tensor.get_double(k), got = y[i].tensor.get_double(k);
        bool same = want == got || (std::isnan(want) && std::isnan(got)) ||
                    std::fabs(want - got) <= tolerance * std::max(1.0, std::fabs(want));
        wrong += !same;
      }
      CHECK_MESSAGE(wrong == 0,
                    "output " << i << ": " << wrong << " of " << x[i].tensor.count() << " values differ");
    }
  }
}

}  // namespace

TEST_CASE("before and after") {
  for (const auto& file : std::filesystem::directory_iterator("tests/passes/cases"))
    CHECK_MESSAGE(passes_by_name().count(file.path().stem()) == 1, file.path(),
                  " has no line in passes_by_name()");
  size_t count = 0;
  for (const auto& [name, pass] : passes_by_name()) {
    std::string path = cat("tests/passes/cases/", name, ".txt");
    REQUIRE_MESSAGE(std::filesystem::exists(path), path);
    for (const Case& c : read_cases(path)) {
      INFO(name << ": " << c.name);
      Graph before = parse_graph(c.before), g = before;
      bool changed = pass(g);
      verify(g, name);
      g.sort();
      g.compact();
      bool same = c.after.rfind("same", 0) == 0;
      CHECK(changed == !same);
      std::string want = print(same ? before : parse_graph(c.after), {.names = false});
      CHECK_MESSAGE(print(g, {.names = false}) == want, "got:\n"
                                                            << print(g, {.names = false}) << "wanted:\n"
                                                            << want);
      // Rounding may differ where constants were combined or the precision is lower; exact passes stay exact.
      check_same_values(before, g,
                        name == "precision"                           ? 0.02
                        : name == "fold_norm" || name == "composites" ? 1e-5
                                                                      : 1e-12);
      CHECK_FALSE_MESSAGE(pass(g), "a second application changes the graph");
      ++count;
    }
  }
  CHECK(count >= 30);
}
