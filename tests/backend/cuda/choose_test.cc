// SPDX-License-Identifier: Apache-2.0
// What the CUDA back end takes, asked without a GPU: for every stored case of the ops, and for groups.
#include <doctest/doctest.h>

#include <map>

#include "backend/cuda.h"
#include "ir/text.h"
#include "runtime/plan.h"
#include "support/op_cases.h"

using namespace pelton;

namespace {

const backend::Registry& cuda_registry() {
  static backend::Registry* r = [] {
    auto* made = new backend::Registry;
    backend::register_cuda(*made);
    return made;
  }();
  return *r;
}

std::string implementation_of(const std::string& text) {
  ir::Graph g = ir::parse_graph(text);
  std::string out;
  for (const runtime::Choice& c : runtime::choose_all(g, cuda_registry(), device::cuda_target(90)))
    if (c.implementation != runtime::kNothing) append(out, cat(out.empty() ? "" : " ", c.implementation));
  return out;
}

}  // namespace

TEST_CASE("cuda: every stored case of the ops is taken or refused with a reason") {
  std::map<std::string, int> taken;
  for (const std::string& file : test::case_files())
    for (const test::Case& c : test::read_cases(file)) {
      if (!c.code.empty()) continue;
      CAPTURE(c.name);
      ir::Graph g = ir::parse_graph(c.graph);
      for (const runtime::Choice& choice : runtime::choose_all(g, cuda_registry(), device::cuda_target(90))) {
        ++taken[choice.implementation];
        for (const runtime::Refusal& r : choice.refusals) CHECK(!r.reason.empty());
      }
    }
  CHECK(taken["cuda.generated"] > 1000);
  CHECK(taken["cublaslt.matmul"] >= 20);
  CHECK(taken["cuda.gather"] > 10);
  CHECK(taken["cuda.integer"] > 10);
}

TEST_CASE("cuda: products take a scale, a row, a residual and an activation with them") {
  auto group = [](const char* steps, const char* last) {
    return cat(
        "graph \"g\"(%x: f16[8,16], %w: f16[16,32], %b: f16[32], %r: f16[8,32]) {\n  %y = fused(%x, %w, %b, "
        "%r) {body = "
        "graph \"matmul\"(%0: f16[8,16], %1: f16[16,32], %2: f16[32], %3: f16[8,32]) {\n      %4 = "
        "matmul(%0, %1) : "
        "f16[8,32]\n",
        steps, "      return ", last, "\n    }, kind = \"matmul\"} : f16[8,32]\n  return %y\n}");
  };
  CHECK(implementation_of(
            group("      %5 = add(%4, %2) : f16[8,32]\n      %6 = add(%5, %3) : f16[8,32]\n      %7 = "
                  "relu(%6) : f16[8,32]\n",
                  "%7")) == "cublaslt.matmul");
  // What follows the activation, or an activation that the library lacks, is not taken in.
  CHECK(implementation_of(
            group("      %5 = relu(%4) : f16[8,32]\n      %6 = add(%5, %3) : f16[8,32]\n      %7 = add(%6, "
                  "%2) : f16[8,32]\n",
                  "%7")) == "reference");
}

TEST_CASE("cuda: groups and layouts become generated kernels") {
  CHECK(implementation_of(R"(graph "g"(%x: f16[2,8,4,4]) {
  %0 = layout(%x) {to = "nhwc"} : f16[2,8,4,4]{nhwc}
  %1 = relu(%0) : f16[2,8,4,4]{nhwc}
  %2 = layout(%1) {to = "plain"} : f16[2,8,4,4]
  return %2
})") == "cuda.generated cuda.generated cuda.generated");
  // Data of one place lies the same in both.
  CHECK(implementation_of(R"(graph "g"(%x: f16[2,8,1,1]) {
  %0 = layout(%x) {to = "nhwc"} : f16[2,8,1,1]{nhwc}
  %1 = layout(%0) {to = "plain"} : f16[2,8,1,1]
  return %1
})") == "");
  CHECK(implementation_of(R"(graph "g"(%x: f32[N,64]) {
  symbol N in [1, 100]
  %0 = softmax(%x) {axis = 0} : f32[N,64]
  return %0
})") == "cuda.generated");
}
