// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::test;

namespace {

std::string graph(const Dims& x, int64_t axis, const char* attrs, const Dims& y, const char* type = "f32") {
  return cat("graph \"g\"(%x: ", type, x, ") { %y = fft(%x) {axis = ", axis, attrs, "} : ", type, y,
             " return %y }");
}

}  // namespace

TEST_CASE("fft of real lines, two at a time, one left over, many threads") {
  for (const int64_t n : {2, 4, 8, 64, 512, 4096})
    for (const int64_t lines : {0, 1, 2, 3, 37}) {
      CAPTURE(n);
      CAPTURE(lines);
      check_node(graph({lines, n, 1}, 1, ", onesided = true", {lines, n / 2 + 1, 2}),
                 {random(DType::f32, {lines, n, 1}, static_cast<uint64_t>(n + lines))},
                 {.implementation = "cpu.fft"}, Measure::absolute);
    }
}

TEST_CASE("fft: what the kernel leaves to the reference") {
  auto why = [](const std::string& text) { return refusal(ir::parse_graph(text), "cpu.fft"); };
  CHECK(why(graph({3, 12, 1}, 1, ", onesided = true", {3, 7, 2})).find("power of two") != std::string::npos);
  CHECK(why(graph({3, 8192, 1}, 1, ", onesided = true", {3, 4097, 2})).find("up to 4096") !=
        std::string::npos);
  CHECK(why(graph({3, 8, 1}, 1, "", {3, 8, 2})).find("one-sided") != std::string::npos);
  CHECK(why(graph({8, 3, 1}, 0, ", onesided = true", {5, 3, 2})).find("last axis") != std::string::npos);
  CHECK(why(graph({3, 8, 1}, 1, ", onesided = true", {3, 5, 2}, "f64")).find("needs f32") !=
        std::string::npos);
}
