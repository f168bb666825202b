// SPDX-License-Identifier: Apache-2.0
// Transpositions and reshapes that move nothing in a plan: what reads through them finds the right elements.
#include <doctest/doctest.h>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "device/target.h"
#include "ir/text.h"
#include "runtime/executable.h"

using namespace pelton;
using namespace pelton::test;

namespace {

constexpr const char* kImage = R"(graph "g"(%x: f32[N,3,4,5]) {
  symbol N in [1, 64]
  %0 = layout(%x) {to = "nhwc"} : f32[N,3,4,5]{nhwc}
  %1 = neg(%0) : f32[N,3,4,5]{nhwc}
  %2 = transpose(%1) {perm = [0,2,3,1]} : f32[N,4,5,3]
  %3 = layer_norm(%2) {axis = 3, eps = 0.125} : f32[N,4,5,3]
  %4 = transpose(%3) {perm = [0,3,1,2]} : f32[N,3,4,5]{nhwc}
  %5 = add(%4, %1) : f32[N,3,4,5]{nhwc}
  %6 = layout(%5) {to = "plain"} : f32[N,3,4,5]
  %7 = reshape(%5) {dims = dims[N,3,20]} : f32[N,3,20]{nhwc}
  %8 = transpose(%7) {perm = [0,2,1]} : f32[N,20,3]
  return %6, %2, %8
})";

}  // namespace

TEST_CASE("a plan reads images as tokens and back without moving them") {
  const device::Target target = device::detect_cpu();
  if (target.isa < device::CpuIsa::avx2) return;  // the changes of layout are the library's
  auto plan = std::make_shared<runtime::Plan>();
  plan->graph = ir::parse_graph(kImage);
  plan->target = target;
  plan->choices = runtime::choose_all(plan->graph, cpu_registry(), target);
  for (size_t i = 0; i < plan->choices.size(); ++i)
    if (const ir::Node& n = plan->graph[plan->graph.order()[i]]; n.is("transpose") || n.is("reshape"))
      CHECK(plan->choices[i].implementation == runtime::kNothing);
  const auto executable =
      runtime::Executable::create(plan, cpu_registry(), target, {.check_memory = true, .retune = false});
  runtime::Context context = executable->context();
  for (int64_t batch : {1, 3}) {
    const Tensor x = random(DType::f32, {batch, 3, 4, 5}, 1);
    const auto got = context.run_tensors({x});
    const auto want = interp::run(plan->graph, {x}).outputs;
    for (size_t i = 0; i < want.size(); ++i) {
      REQUIRE(got[i].dims() == want[i].tensor.dims());
      for (int64_t k = 0; k < got[i].count(); ++k)
        CHECK(got[i].get_double(k) == doctest::Approx(want[i].tensor.get_double(k)).epsilon(1e-5));
    }
  }
}
