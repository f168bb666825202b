// SPDX-License-Identifier: Apache-2.0
// Every composite equals its decomposition on random shapes, sizes 0 and 1 included, and attributes.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "interp/interpreter.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ops/harness_composites.h"

using namespace pelton;
using namespace pelton::ir;
using test::Draw;
using test::Instance;

namespace {

double largest(const Tensor& t) {
  double top = 0;
  for (int64_t i = 0; i < t.count(); ++i)
    if (double v = std::fabs(t.get_double(i)); std::isfinite(v)) top = std::max(top, v);
  return top;
}

}  // namespace

TEST_CASE("composites equal their decompositions") {
  // Bounds relative to the largest element: f64 1e-11, f32 1e-5 (a few dozen roundings of 6e-8 that cancel).
  constexpr double bound_f64 = 1e-11, bound_f32 = 1e-5;
  // Their operands are sub-graphs or offsets, which stored cases draw; a custom op's come with its plug-in.
  const std::set<std::string_view> elsewhere{"fused", "embedding_bag", "custom"};
  uint64_t number = 0;
  for (const OpDef* row : all_ops()) {
    if (!row->decompose || elsewhere.count(row->name)) continue;
    for (uint64_t k = 0; k < 40; ++k) {
      DType t = k % 2 ? DType::f64 : DType::f32;
      Draw d(++number);
      std::optional<Instance> instance = draw(row->name, d, t);
      CAPTURE(row->name);
      REQUIRE(instance);
      Graph g;
      std::vector<ValueId> operands;
      std::vector<HostValue> values;
      for (const Tensor& x : instance->inputs) {
        operands.push_back(x.defined() ? g.add_input(Type::tensor(x.dtype(), to_shape(x.dims())))
                                       : ValueId{});
        if (x.defined()) values.emplace_back(x);
      }
      g.outputs = Builder(g).ops(row->name, operands, instance->attrs, instance->outputs);
      std::string text = print(g);
      CAPTURE(text);
      auto want = interp::run(g, values).outputs;
      REQUIRE(expand(g, g.order().back()));
      verify(g, "decomposition");
      auto got = interp::run(g, values).outputs;
      for (size_t i = 0; i < want.size(); ++i) {
        const Tensor &a = got[i].tensor, &b = want[i].tensor;
        REQUIRE(a.str() == b.str());
        const bool wide = t == DType::f64 && b.dtype() != DType::f32;
        double bound = (wide ? bound_f64 : bound_f32) * std::max(1.0, largest(b));
        for (int64_t e = 0; e < b.count(); ++e) {
          double x = a.get_double(e), y = b.get_double(e);
          CAPTURE(x);
          CAPTURE(y);
          CHECK((std::isnan(y) ? std::isnan(x) : x == y || std::fabs(x - y) <= bound));
        }
      }
    }
  }
}
