// SPDX-License-Identifier: Apache-2.0
// Reductions in two steps yield what they yield in one. The rewriting needs no GPU.
#include "backend/cuda/reductions.h"

#include <doctest/doctest.h>

#include "backend/cuda/harness.h"
#include "base/cat.h"
#include "codegen/lower.h"
#include "interp/interpreter.h"
#include "ir/text.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;
using namespace pelton::backend::cuda;

namespace {

void check_split(const std::string& text, int64_t parts, const std::vector<Tensor>& inputs) {
  CAPTURE(text);
  const ir::Graph g = ir::parse_graph(text);
  const std::optional<SplitReduction> split = split_reduction(g, parts);
  REQUIRE(split);
  auto run = [](const ir::Graph& graph, std::vector<ir::HostValue> in) {
    return interp::run(graph, std::move(in)).outputs;
  };
  std::vector<ir::HostValue> all(inputs.begin(), inputs.end()), first;
  for (size_t i : split->first_inputs) first.push_back(inputs[i]);
  std::vector<ir::HostValue> second = run(split->first, first);
  for (const ir::HostValue& v : second) CHECK(v.tensor.dims()[0] == parts);
  for (size_t i : split->second_inputs) second.push_back(inputs[i]);
  const std::vector<ir::HostValue> got = run(split->second, second), want = run(g, all);
  REQUIRE(got.size() == want.size());
  for (size_t o = 0; o < got.size(); ++o) {
    REQUIRE(got[o].tensor.dims() == want[o].tensor.dims());
    for (int64_t i = 0; i < got[o].tensor.count(); ++i)
      CHECK(got[o].tensor.get_double(i) == doctest::Approx(want[o].tensor.get_double(i)).epsilon(1e-5));
  }
}

}  // namespace

TEST_CASE("reductions split into stretches of rows") {
  check_split("graph \"g\"(%x: f32[12,5]) { %y = reduce_sum(%x) {axes = [0]} : f32[5] return %y }", 4,
              {random(DType::f32, {12, 5}, 1)});
  check_split(
      "graph \"g\"(%x: f32[2,3,4,6], %s: f32[3]) { %q = square(%x) : f32[2,3,4,6] %a = reduce_mean(%q) {axes "
      "= "
      "[0,2,3], keep_dims = true} : f32[1,3,1,1] %b = reduce_max(%x) {axes = [0,2,3], keep_dims = true} : "
      "f32[1,3,1,1] "
      "%c = add(%a, %b) : f32[1,3,1,1] %d = reshape(%c) {dims = dims[3]} : f32[3] %y = mul(%d, %s) : f32[3] "
      "return %y }",
      8, {random(DType::f32, {2, 3, 4, 6}, 1), random(DType::f32, {3}, 2)});
  check_split(
      "graph \"g\"(%x: f32[40]) { %q = square(%x) : f32[40] %s = reduce_sum(%q) {axes = [0]} : f32[] %y = "
      "sqrt(%s) : f32[] return %y }",
      10, {random(DType::f32, {40}, 1)});
}

TEST_CASE("reductions that cannot be split are left whole") {
  auto refused = [](const char* text, int64_t parts) {
    return !split_reduction(ir::parse_graph(text), parts);
  };
  // The second reduction needs the first; a result of full size; a length that does not divide; a symbol.
  CHECK(refused(
      "graph \"g\"(%x: f32[3,8]) { %m = reduce_mean(%x) {axes = [1], keep_dims = true} : f32[3,1] %c = "
      "sub(%x, %m) : f32[3,8] %y = reduce_sum(%c) {axes = [1]} : f32[3] return %y }",
      2));
  CHECK(refused("graph \"g\"(%x: f32[3,8]) { %y = softmax(%x) {axis = 1} : f32[3,8] return %y }", 2));
  CHECK(refused("graph \"g\"(%x: f32[3,7]) { %y = reduce_sum(%x) {axes = [1]} : f32[3] return %y }", 2));
  CHECK(refused("graph \"g\"(%x: f32[N,8]) { %y = reduce_sum(%x) {axes = [1]} : f32[N] return %y }", 2));
  CHECK(even_parts(12, 5) == 4);
  CHECK(even_parts(13, 5) == 1);
}

TEST_CASE("which way memory runs under a reduction") {
  auto columns = [](const char* text) {
    const ir::Graph g = ir::parse_graph(text);
    const codegen::Lowered l = codegen::lower(g, "k");
    REQUIRE(l.kernel);
    return reads_columns(*l.kernel, {});
  };
  CHECK(columns("graph \"g\"(%x: f32[64,32]) { %y = reduce_sum(%x) {axes = [0]} : f32[32] return %y }"));
  CHECK(!columns("graph \"g\"(%x: f32[64,32]) { %y = reduce_sum(%x) {axes = [1]} : f32[64] return %y }"));
  CHECK(columns("graph \"g\"(%x: f32[4,64,8]) { %y = reduce_sum(%x) {axes = [1]} : f32[4,8] return %y }"));
  CHECK(!columns("graph \"g\"(%x: f32[64]) { %y = square(%x) : f32[64] return %y }"));
}

TEST_CASE("reductions on the GPU: columns, few long rows, groups") {
  PELTON_NEEDS_GPU();
  for (const char* type : {"f32", "bf16"}) {
    const DType t = *dtype_from_name(type);
    for (const Dims& x : {Dims{3000, 40}, Dims{4096, 768}, Dims{8192, 1}, Dims{77, 33}, Dims{640, 1000}})
      for (int64_t axis : {0, 1})
        for (const char* op : {"reduce_sum", "reduce_mean", "reduce_max"}) {
          const Dims y = {x[static_cast<size_t>(1 - axis)]};
          const std::string text = cat("graph \"g\"(%x: ", type, x, ") { %y = ", op, "(%x) {axes = [", axis,
                                       "]} : ", type, y, " return %y }");
          CAPTURE(text);
          GpuCase(text, {random(t, x, 1)}).check("cuda.generated");
        }
    GpuCase(cat("graph \"g\"(%x: ", type,
                "[300000]) { %c = cast(%x) {to = f32} : f32[300000] %q = square(%c) : "
                "f32[300000] %s = reduce_sum(%q) {axes = [0]} : f32[] %y = sqrt(%s) : f32[] return %y }"),
            {random(t, {300000}, 1)}, {"reduce", {}, {}})
        .check("cuda.generated");
    GpuCase(cat("graph \"g\"(%x: ", type,
                "[16,24,30,20]{nhwc}) { %c = cast(%x) {to = f32} : f32[16,24,30,20]{nhwc} "
                "%y = reduce_sum(%c) {axes = [0,2,3]} : f32[24] return %y }"),
            {random(t, {16, 24, 30, 20}, 1)}, {"reduce", {}, {}})
        .check("cuda.generated");
  }
}
