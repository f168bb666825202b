// SPDX-License-Identifier: Apache-2.0
#include "runtime/refit.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ir/text.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::test;

namespace {

// %a [2,3] is also the transpose of the model's "b" [3,2]; %h is held in 16 bits.
runtime::Plan plan_with_two_names() {
  runtime::Plan plan;
  plan.graph = ir::parse_graph(R"(graph "g"(%x: f32[1,3], %z: f16[2]) {
  %a = constant() {transposed_names = texts["b"], value = tensor<f32[2,3]>{1, 2, 3, 4, 5, 6}} : f32[2,3]
  %h = constant() {value = tensor<f16[2]>{1, 2}} : f16[2]
  %y = matmul(%x, %a) {transpose_b = true} : f32[1,2]
  %w = add(%z, %h) : f16[2]
  return %y, %w
})");
  return plan;
}

Tensor matrix(Dims dims, std::vector<float> values) {
  return Tensor::from<float>(std::move(dims), values);
}

std::vector<double> held(const runtime::Plan& plan, std::string_view name) {
  for (ir::NodeId id : plan.graph.order())
    if (plan.graph[plan.graph[id].outputs[0]].name == name)
      return to_doubles(plan.graph[id].get_tensor("value"));
  return {};
}

}  // namespace

TEST_CASE("refit: a matrix that a model holds twice takes new values by either name") {
  const runtime::Plan plan = plan_with_two_names();
  const Tensor a = matrix({2, 3}, {7, 8, 9, 10, 11, 12}), b = matrix({3, 2}, {7, 10, 8, 11, 9, 12});
  const std::vector<double> want = {7, 8, 9, 10, 11, 12};
  CHECK(held(*runtime::refit(plan, {{"a", a}}), "a") == want);
  CHECK(held(*runtime::refit(plan, {{"b", b}}), "a") == want);
  CHECK(held(*runtime::refit(plan, {{"a", a}, {"b", b}}), "a") == want);
  CHECK(held(plan, "a") == std::vector<double>{1, 2, 3, 4, 5, 6});
  const Tensor other = matrix({3, 2}, {7, 10, 8, 11, 9, 13});
  expect_error(ErrorCode::usage, {"one weight with 'a'", "differ", "weight 'b'", "alone"}, [&] {
    runtime::refit(plan, {{"a", a}, {"b", other}});
  });
  expect_error(ErrorCode::bad_shape, {"expected f32[3,2], got f32[2,3]", "weight 'b'"}, [&] {
    runtime::refit(plan, {{"b", a}});
  });
}

TEST_CASE("refit: f32 is rounded to the 16 bits that a plan holds, other types are refused") {
  const runtime::Plan plan = plan_with_two_names();
  const Tensor h = matrix({2}, {0.1f, 70000.0f});
  const std::vector<double> got = held(*runtime::refit(plan, {{"h", h}}), "h");
  REQUIRE(got.size() == 2);
  CHECK(got[0] == 0x1.998p-4);
  CHECK(got[1] == HUGE_VAL);
  expect_error(ErrorCode::bad_shape, {"expected f16[2], got f64[2]", "weight 'h'"}, [&] {
    runtime::refit(plan, {{"h", Tensor::from<double>({2}, {1, 2})}});
  });
}
