// SPDX-License-Identifier: Apache-2.0
// Gradients of composites against those that PyTorch computed (torch_cases.py), both in f64.
#include <cmath>

#include "autodiff/autodiff.h"
#include "interp/interpreter.h"
#include "support/op_cases.h"

using namespace pelton;
using namespace pelton::ir;

TEST_CASE("gradients equal PyTorch's") {
  // f64 both ways, sums in another order; stored numbers have 16 digits.
  constexpr double bound = 1e-11;
  std::vector<test::Case> cases = test::read_cases("tests/autodiff/cases/torch.txt");
  CHECK(cases.size() >= 60);
  for (const test::Case& c : cases) {
    CAPTURE(c.name);
    Graph g = parse_graph(c.graph);
    std::vector<ValueId> wrt;
    for (ValueId v : g.inputs)
      if (is_float(g.type(v).dtype) && wrt.size() < c.outputs.size()) wrt.push_back(v);
    autodiff::GradientOptions options;
    options.seed = g.inputs.back();
    g.outputs = autodiff::gradient(g, g.outputs[0], wrt, options);
    std::vector<HostValue> got = interp::run(g, c.inputs).outputs;
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      const Tensor &want = c.outputs[i], &have = got[i].tensor;
      REQUIRE(have.str() == want.str());
      double top = 1, worst = 0;
      for (int64_t k = 0; k < want.count(); ++k) {
        top = std::max(top, std::fabs(want.get_double(k)));
        worst = std::max(worst, std::fabs(want.get_double(k) - have.get_double(k)));
      }
      CHECK(worst <= bound * top);
    }
  }
}
