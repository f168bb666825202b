// SPDX-License-Identifier: Apache-2.0
// Kernels share the arithmetic of the reference, so every value must be equal.
#include <doctest/doctest.h>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::test;

namespace {

// Its decomposition into products rounds elsewhere: the op's own reference is the measure.
void check_bits(const std::string& text, const Tensor& x) {
  CAPTURE(text);
  const ir::Graph g = ir::parse_graph(text);
  const Tensor got = run_on_cpu(g, {x}, {.implementation = "cpu.picture"})[0];
  CHECK(got.same_bytes(interp::run(g, {x}).outputs[0].tensor));
}

}  // namespace

TEST_CASE("picture_resample equals its reference in every bit") {
  struct Case {
    const char* attrs;
    const char* result;
  };
  const Case cases[] = {{"", "f32"},
                        {", filter = \"cubic\"", "f32"},
                        {", filter = \"nearest\"", "f32"},
                        {", antialias = false", "f32"},
                        {", match = \"pillow\"", "u8"},
                        {", match = \"pillow\", filter = \"lanczos\"", "u8"},
                        {", match = \"torchvision\"", "u8"},
                        {", match = \"opencv\", antialias = false", "u8"},
                        {", match = \"opencv\", filter = \"cubic\", antialias = false", "u8"}};
  const Dims sizes[] = {{1, 31, 40, 3}, {3, 70, 22, 1}, {5, 33, 17, 3}};
  for (const Dims& x : sizes)
    for (auto [h, w] : {std::pair<int64_t, int64_t>(24, 24), {65, 9}, {16, 50}})
      for (const Case& c : cases) {
        const Dims y = {x[0], h, w, x[3]};
        check_bits(cat("graph \"g\"(%x: u8", x, ") { %y = picture_resample(%x) {dims = dims", y, c.attrs,
                       "} : ", c.result, y, " return %y }"),
                   random(DType::u8, x, 3, 0, 256));
      }
}

TEST_CASE("picture_resample makes a window alone, and nothing of nothing") {
  check_bits(
      "graph \"g\"(%x: u8[2,31,40,3]) { %y = picture_resample(%x) {dims = dims[2,17,20,3], size = "
      "dims[40,24], "
      "origin = dims[20,4]} : f32[2,17,20,3] return %y }",
      random(DType::u8, {2, 31, 40, 3}, 3, 0, 256));
  check_bits(
      "graph \"g\"(%x: u8[0,4,4,3]) { %y = picture_resample(%x) {dims = dims[0,2,2,3]} : f32[0,2,2,3] return "
      "%y }",
      Tensor(DType::u8, {0, 4, 4, 3}));
}
