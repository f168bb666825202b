// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "base/thread_pool.h"
#include "ir/text.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::test;

namespace {

struct Case {
  int64_t batch, inputs, outputs, height, width, pad_low, pad_high;
};

double weight(int64_t i) {
  return static_cast<double>((i * 7919 + i / 9 * 31) % 257 - 128) / 64;
}
// Weights as a constant of the graph, which the implementation asks for.
std::string constant_weights(const Dims& dims) {
  std::string values;
  for (int64_t i = 0; i < element_count(dims); ++i) append(values, cat(i ? ", " : "", weight(i)));
  return cat("%w = constant() {value = tensor<f32", dims, ">{", values, "}} : f32", dims, " ");
}

std::string text_of(const Case& c, const char* steps, const char* extra) {
  const Dims x = {c.batch, c.inputs, c.height, c.width}, w = {c.outputs, c.inputs, 3, 3};
  const Dims y = {c.batch, c.outputs, c.height + c.pad_low + c.pad_high - 2,
                  c.width + c.pad_low + c.pad_high - 2};
  const std::string type = cat("f32", y, "{nhwc}");
  std::string body = cat("%0: f32", x, "{nhwc}, %1: f32", w);
  std::string head = cat("%x: f32", x, "{nhwc}"), names = "%x, %w";
  for (const char* e = extra; *e; ++e) {
    const std::string operand = *e == 'b' ? cat("f32[", c.outputs, ",1,1]") : type;
    append(head, cat(", %", std::string(1, *e), ": ", operand));
    append(body, cat(", %o", std::string(1, *e), ": ", operand));
    append(names, cat(", %", std::string(1, *e)));
  }
  std::string chain = steps;
  for (size_t at; (at = chain.find('@')) != std::string::npos;) chain.replace(at, 1, type);
  return cat("graph \"g\"(", head, ") { ", constant_weights(w), "%out = fused(", names,
             ") {body = graph \"b\"(", body, ") { %c = conv(%0, %1) {low = dims[", c.pad_low, ",", c.pad_low,
             "], high = dims[", c.pad_high, ",", c.pad_high, "]} : ", type, " ", chain,
             " }, kind = \"conv\"} : ", type, " return %out }");
}

}  // namespace

TEST_CASE("3x3 convolution by Winograd's transform, odd sizes, tails and pads, any number of threads") {
  if (device::detect_cpu().isa < device::CpuIsa::avx2) return;
  for (int threads : {1, 3}) {
    set_threads(threads);
    for (const Case& c :
         {Case{1, 32, 32, 7, 7, 1, 1}, Case{2, 40, 35, 9, 6, 0, 1}, Case{1, 64, 70, 8, 13, 2, 0},
          Case{1, 33, 48, 24, 25, 1, 1}, Case{3, 32, 96, 8, 8, 0, 0}}) {
      CAPTURE(c.height);
      check_node(text_of(c, "return %c", ""), {random(DType::f32, {c.batch, c.inputs, c.height, c.width}, 1)},
                 {.implementation = "cpu.winograd"}, Measure::absolute);
    }
  }
  set_threads(0);
}

TEST_CASE("3x3 convolution by Winograd's transform with what follows it") {
  if (device::detect_cpu().isa < device::CpuIsa::avx2) return;
  const Case c{2, 32, 48, 9, 11, 1, 1};
  const Dims y = {2, 48, 9, 11};
  struct Chain {
    const char *steps, *extra;
  };
  for (int threads : {1, 2})
    for (const Chain& chain :
         {Chain{"%2 = add(%c, %ob) : @ %3 = relu(%2) : @ return %3", "b"},
          Chain{"%2 = add(%c, %ob) : @ %3 = silu(%2) : @ return %3", "b"},
          Chain{"%2 = add(%c, %ob) : @ %3 = silu(%2) : @ %4 = add(%3, %or) : @ return %4", "br"},
          Chain{"%2 = add(%c, %or) : @ %3 = relu(%2) : @ return %3", "r"}}) {
      CAPTURE(chain.steps);
      set_threads(threads);
      std::vector<Tensor> inputs = {random(DType::f32, {2, 32, 9, 11}, 1)};
      for (const char* e = chain.extra; *e; ++e)
        inputs.push_back(random(DType::f32, *e == 'b' ? Dims{48, 1, 1} : y, 3));
      check_node(text_of(c, chain.steps, chain.extra), inputs, {.implementation = "cpu.winograd"},
                 Measure::absolute);
    }
  set_threads(0);
}

TEST_CASE("3x3 convolution by Winograd's transform: NaN and infinities stay where the sum puts them") {
  if (device::detect_cpu().isa < device::CpuIsa::avx2) return;
  const Case c{1, 32, 40, 12, 12, 1, 1};
  Tensor x = random(DType::f32, {1, 32, 12, 12}, 1);
  x.set_double(3 * 144 + 12 * 2 + 3, INFINITY);
  x.set_double(5 * 144 + 12 * 8 + 8, NAN);
  const ir::Graph g = ir::parse_graph(text_of(c, "return %c", ""));
  const Tensor y = run_on_cpu(g, {x}, {.implementation = "cpu.winograd"})[0];
  const auto near = [](int64_t row, int64_t column, int64_t r, int64_t k) {
    return std::abs(row - r) <= 1 && std::abs(column - k) <= 1;
  };
  for (int64_t o = 0; o < 40; ++o)
    for (int64_t row = 0; row < 12; ++row)
      for (int64_t column = 0; column < 12; ++column) {
        const double v = y.get_double((o * 12 + row) * 12 + column);
        CAPTURE(row);
        CAPTURE(column);
        if (near(row, column, 8, 8))
          CHECK(std::isnan(v));
        else if (!near(row, column, 2, 3))
          CHECK(std::isfinite(v));
        else if (weight(((o * 32 + 3) * 3 + 3 - row) * 3 + 4 - column) == 0)
          CHECK(std::isnan(v));
        else
          CHECK(std::isinf(v));
      }
}

TEST_CASE("Winograd's transform says what it does not take") {
  if (device::detect_cpu().isa < device::CpuIsa::avx2) return;
  const auto why = [](const std::string& text) { return refusal(ir::parse_graph(text), "cpu.winograd"); };
  const auto conv = [](const char* x, const char* w, const char* attrs, const char* y) {
    return cat("graph \"g\"(%x: ", x, ", %w: ", w, ") { %y = conv(%x, %w) {", attrs, "} : ", y,
               " return %y }");
  };
  CHECK(why(conv("f32[1,32,8,8]{nhwc}", "f32[32,32,3,3]", "", "f32[1,32,6,6]{nhwc}")) ==
        "needs constant f32 weights");
  CHECK(why(conv("f32[1,32,8,8]", "f32[32,32,3,3]", "", "f32[1,32,6,6]")) == "needs channels-last images");
  // A second value a channel behind a bias is no operand of the result's size.
  std::string text = text_of({1, 32, 32, 8, 8, 0, 0}, "%2 = add(%c, %ob) : @ return %2", "b");
  const std::string without = "%c = conv(%0, %1) {";
  text.replace(text.find(without), without.size(),
               "%d = reshape(%ob) {dims = dims[32]} : f32[32] "
               "%c = conv(%0, %1, %d) {");
  CHECK(why(text) == "has an operand of add that is not like the result");
}
