// SPDX-License-Identifier: Apache-2.0
#include "codegen/shared_form.h"

#include <doctest/doctest.h>

#include "codegen/interpret.h"
#include "codegen/lower.h"
#include "interp/interpreter.h"
#include "kernel_ir/groups.h"

using namespace pelton;
using namespace pelton::codegen;

namespace {

std::string text_of(const std::string& group) {
  const std::optional<SharedForm> form = shared_form(ir::parse_graph(group), {});
  REQUIRE(form);
  const Lowered lowered = lower(form->graph, "k");
  INFO(lowered.reason);
  REQUIRE(lowered.kernel);
  return print(*lowered.kernel);
}

std::string scaled(const char* dims, const char* rows, double by) {
  return cat("graph \"g\"(%x: f16", dims, ", %b: f16", rows, ") { %s = constant() {value = tensor<f32[]>{",
             by, "}} : f32[] %0 = cast(%x) {to = f32} : f32", dims, " %1 = mul(%0, %s) : f32", dims,
             " %2 = cast(%1) {to = f16} : f16", dims, " %3 = add(%2, %b) : f16", dims, " return %3 }");
}

}  // namespace

TEST_CASE("groups that differ in sizes and numbers have one kernel in their shared form") {
  const std::string text = text_of(scaled("[8,64,28,56]", "[1,64,1,1]", 2));
  CHECK(text == text_of(scaled("[24,32,7,40]", "[1,32,1,1]", 0.125)));
  CHECK(text != text_of(scaled("[24,32,7,7]", "[1,32,1,1]", 2)));     // equal sizes are one
  CHECK(text != text_of(scaled("[24,32,7,40]", "[24,32,7,40]", 2)));  // another group
  CHECK(text.find("8*n0") != std::string::npos);
}

TEST_CASE("kernels of the shared form compute what the group does") {
  size_t compared = 0;
  for (const test::Group& group : test::groups()) {
    CAPTURE(group.name);
    const ir::Graph g = ir::parse_graph(group.text);
    for (const SymbolValues& sizes : group.sizes) {
      const std::optional<SharedForm> form = shared_form(g, sizes);
      if (!form) continue;
      const Lowered lowered = lower(form->graph, "k");
      if (!lowered.kernel) continue;
      std::vector<Tensor> inputs = test::inputs_of(g, sizes);
      const auto want = interp::run(g, {inputs.begin(), inputs.end()}).outputs;
      inputs.insert(inputs.end(), form->constants.begin(), form->constants.end());
      const std::vector<Tensor> got = interpret(*lowered.kernel, inputs, form->sizes);
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        REQUIRE(got[i].dims() == want[i].tensor.dims());
        for (int64_t e = 0; e < got[i].count(); ++e) {
          const double a = got[i].get_double(e), b = want[i].tensor.get_double(e);
          CHECK((std::isnan(b) ? std::isnan(a)
                               : a == b || std::fabs(a - b) <= group.atol + group.rtol * std::fabs(b)));
        }
      }
      ++compared;
    }
  }
  CHECK(compared > 100);
  MESSAGE(compared, " groups");
}

TEST_CASE("a group with constants of no elements has no shared form") {
  CHECK(!shared_form(
      ir::parse_graph("graph \"g\"(%x: f32[6]) { %c = constant() {value = tensor<f32[0]>{}} : f32[0] "
                      "%0 = concat(%x, %c) {axis = 0} : f32[6] return %0 }"),
      {}));
}
