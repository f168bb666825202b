// SPDX-License-Identifier: Apache-2.0
// Runs the stored cases of tests/ops/cases (format in tests/ops/README.md).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "support/op_cases.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::test;

namespace {

double default_rtol(DType t) {
  switch (t) {
    case DType::f64:
      return 1e-12;
    case DType::f32:
      return 3e-7;
    case DType::f16:
      return 1e-3;
    case DType::bf16:
      return 8e-3;
    default:
      return 0;
  }
}

// "" or what differs first.
std::string difference(const Tensor& got, const Tensor& want, double rtol, double atol) {
  if (got.dtype() != want.dtype() || got.dims() != want.dims())
    return cat("got ", got.str(), ", expected ", want.str());
  if (!is_float(want.dtype())) {
    if (want.dtype() == DType::string) return got.strings() == want.strings() ? "" : "strings differ";
    for (int64_t i = 0; i < want.count(); ++i)
      if (got.get_int(i) != want.get_int(i))
        return cat("element ", i, ": got ", got.get_int(i), ", expected ", want.get_int(i));
    return "";
  }
  for (int64_t i = 0; i < want.count(); ++i) {
    double a = got.get_double(i), b = want.get_double(i);
    bool same = std::isnan(a) || std::isnan(b) ? std::isnan(a) && std::isnan(b)
                : std::isinf(b)                ? a == b
                                               : std::fabs(a - b) <= atol + rtol * std::fabs(b);
    if (!same) return cat("element ", i, ": got ", a, ", expected ", b);
  }
  return "";
}

double largest(const Tensor& t) {
  double top = 0;
  for (int64_t i = 0; i < t.count(); ++i)
    if (double v = std::fabs(t.get_double(i)); std::isfinite(v)) top = std::max(top, v);
  return top;
}

bool decompose_all(Graph& g) {
  bool any = false;
  for (NodeId id : std::vector<NodeId>(g.order())) any |= expand(g, id);
  return any;
}

// The graph with its inputs as constants, which shows their values to inference.
Graph closed(const Graph& from, const std::vector<HostValue>& inputs) {
  Graph g = from;
  NodeId first = g.order().empty() ? NodeId() : g.order().front();
  Builder b(g, first);
  for (size_t i = 0; i < inputs.size(); ++i) g.replace_uses(g.inputs[i], b.constant(inputs[i].tensor));
  g.inputs.clear();
  for (NodeId id : g.order())
    if (!g[id].is("constant"))
      for (ValueId v : g[id].outputs) g.edit(v).type = Type();
  infer_all(g);
  return g;
}

void check_case(const Case& c) {
  Graph g = parse_graph(c.graph);
  verify(g);
  std::string text = print(g);
  CHECK(print(parse_graph(text)) == text);
  auto got = interp::run(g, c.inputs).outputs;
  REQUIRE(got.size() == c.outputs.size());
  for (size_t i = 0; i < got.size(); ++i) {
    double rtol = c.rtol < 0 ? default_rtol(c.outputs[i].dtype()) : c.rtol;
    CHECK(difference(got[i].tensor, c.outputs[i], rtol, c.atol) == "");
  }
  bool tensors = std::all_of(c.inputs.begin(), c.inputs.end(),
                             [](const HostValue& v) { return v.kind == TypeKind::tensor; });
  if (tensors && !c.inputs.empty()) {
    INFO("inputs as constants");
    Graph constants = closed(g, c.inputs);
    verify(constants, "closing");
    auto again = interp::run(constants, {}).outputs;
    for (size_t i = 0; i < again.size(); ++i) CHECK(again[i].tensor.same_bytes(got[i].tensor));
  }
  if (!decompose_all(g)) return;
  verify(g, "decomposition");
  auto expanded = interp::run(g, c.inputs).outputs;
  for (size_t i = 0; i < expanded.size(); ++i) {
    const Tensor& want = c.outputs[i];
    double rtol = std::max(c.decomposed, 4 * default_rtol(want.dtype()));
    double atol = is_float(want.dtype()) ? std::max(c.atol, rtol * largest(want)) : 0;
    INFO("decomposed");
    CHECK(difference(expanded[i].tensor, want, rtol, atol) == "");
  }
}

}  // namespace

TEST_CASE("stored cases") {
  std::vector<std::string> files = case_files();
  REQUIRE(!files.empty());
  for (const std::string& file : files) {
    std::vector<Case> cases = read_cases(file);
    REQUIRE(!cases.empty());
    for (const Case& c : cases) {
      CAPTURE(file);
      CAPTURE(c.name);
      if (!c.code.empty()) {
        std::string message;
        try {
          interp::run(parse_graph(c.graph), c.inputs);
        } catch (const Error& e) {
          CHECK(to_string(e.code()) == c.code);
          message = e.what();
        }
        CAPTURE(message);
        CHECK(!message.empty());
        for (const std::string& w : c.words) {
          CAPTURE(w);
          CHECK(message.find(w) != message.npos);
        }
        continue;
      }
      try {
        check_case(c);
      } catch (const Error& e) {
        FAIL_CHECK(std::string(e.what()));
      }
    }
  }
}

// Every constraint of an op that has a case here is broken by a `refuse` whose first words are the op and the
// tag. Ops of a family that share a rule, word for word, share its refusal.
TEST_CASE("every constraint has a refusal") {
  std::set<std::string> tags, with_cases, broken;
  for (const std::string& file : case_files())
    for (const Case& c : read_cases(file)) {
      if (!c.code.empty()) {
        if (c.words.size() > 1) tags.insert(cat(c.words[0], " ", c.words[1]));
        continue;
      }
      Graph g = parse_graph(c.graph);
      if (!g.order().empty()) with_cases.insert(std::string(g.op(g.order().back()).name));
    }
  auto key = [](const OpDef& row, std::string_view rule) { return cat(name(row.family), ", ", rule); };
  for (const OpDef* row : all_ops())
    for (std::string_view rule : row->constraints)
      if (tags.count(cat(row->name, " ", rule.substr(0, rule.find(':'))))) broken.insert(key(*row, rule));
  for (const OpDef* row : all_ops()) {
    if (!with_cases.count(std::string(row->name))) continue;
    for (std::string_view rule : row->constraints) {
      CAPTURE(row->name);
      CAPTURE(rule);
      CHECK(broken.count(key(*row, rule)) == 1);
    }
  }
}
