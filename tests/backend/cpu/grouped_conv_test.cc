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
  int64_t batch, groups, inputs, outputs;  // channels a group
  Dims size, kernel, strides, dilations, low, high;
};

std::string constant_weights(const Dims& dims) {
  std::string values;
  for (int64_t i = 0; i < element_count(dims); ++i)
    append(values, cat(i ? ", " : "", static_cast<double>((i * 7919 + i / 9 * 31) % 257 - 128) / 64));
  return cat("%w = constant() {value = tensor<f32", dims, ">{", values, "}} : f32", dims, " ");
}

Dims result_of(const Case& c) {
  Dims y = {c.batch, c.groups * c.outputs};
  for (size_t i = 0; i < c.size.size(); ++i)
    y.push_back((c.size[i] + c.low[i] + c.high[i] - (c.kernel[i] - 1) * c.dilations[i] - 1) / c.strides[i] +
                1);
  return y;
}
Dims input_of(const Case& c) {
  Dims x = {c.batch, c.groups * c.inputs};
  x.insert(x.end(), c.size.begin(), c.size.end());
  return x;
}

// `extra`: operands of the chain, b one value a channel, r like the result.
std::string text_of(const Case& c, const char* steps = "return %c", const char* extra = "") {
  const Dims x = input_of(c);
  Dims w = {c.groups * c.outputs, c.inputs};
  w.insert(w.end(), c.kernel.begin(), c.kernel.end());
  const std::string type = cat("f32", result_of(c), "{nhwc}");
  std::string body = cat("%0: f32", x, "{nhwc}, %1: f32", w), head = cat("%x: f32", x, "{nhwc}"),
              names = "%x, %w";
  for (const char* e = extra; *e; ++e) {
    const Dims value = c.size.size() == 2 ? Dims{w[0], 1, 1} : Dims{w[0], 1};
    const std::string operand = *e == 'b' ? cat("f32", value) : type, name(1, *e);
    append(head, cat(", %", name, ": ", operand));
    append(body, cat(", %o", name, ": ", operand));
    append(names, cat(", %", name));
  }
  std::string chain = steps;
  for (size_t at; (at = chain.find('@')) != std::string::npos;) chain.replace(at, 1, type);
  return cat("graph \"g\"(", head, ") { ", constant_weights(w), "%out = fused(", names,
             ") {body = graph \"b\"(", body, ") { %c = conv(%0, %1) {groups = ", c.groups,
             ", strides = ", c.strides, ", dilations = ", c.dilations, ", low = dims", c.low, ", high = dims",
             c.high, "} : ", type, " ", chain, " }, kind = \"conv\"} : ", type, " return %out }");
}

const Options kGrouped = {.implementation = "cpu.grouped_conv"};

}  // namespace

TEST_CASE(
    "convolution in groups: sizes of groups, windows, strides, dilations, pads, any number of threads") {
  const bool vectors = device::detect_cpu().isa >= device::CpuIsa::avx2;
  for (int threads : {1, 3}) {
    set_threads(threads);
    for (const Case& c : {
             Case{1, 32, 4, 4, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
             Case{2, 3, 4, 4, {8, 7}, {3, 3}, {2, 2}, {1, 1}, {1, 0}, {0, 1}},
             Case{1, 5, 4, 4, {5, 5}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
             Case{1, 1 + 6, 8, 8, {14, 14}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
             Case{2, 3, 8, 8, {6, 5}, {3, 2}, {1, 2}, {2, 1}, {2, 1}, {2, 0}},
             Case{1, 2, 16, 16, {7, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
             Case{1, 3, 5, 24, {7, 7}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}},
             Case{1, 2, 32, 12, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
             Case{3, 4, 20, 20, {4, 4}, {2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
             Case{1, 48, 1, 2, {12, 10}, {7, 7}, {2, 2}, {1, 1}, {3, 3}, {3, 3}},
             Case{1, 7, 1, 4, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
             Case{2, 9, 2, 2, {5, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
             Case{1, 11, 3, 4, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
             Case{2, 4, 8, 8, {37}, {5}, {1}, {1}, {2}, {2}},
             Case{1, 6, 2, 2, {40}, {9}, {3}, {2}, {0}, {7}},
             Case{1, 2, 16, 8, {300}, {128}, {1}, {1}, {64}, {63}},
         }) {
      if (!vectors && c.outputs < 8 && c.outputs != 4 && c.inputs > c.outputs) continue;
      CAPTURE(c.groups);
      CAPTURE(c.outputs);
      check_node(text_of(c), {random(DType::f32, input_of(c), 1)}, kGrouped, Measure::absolute);
    }
  }
  set_threads(0);
}

TEST_CASE("convolution in groups with what follows it") {
  struct Chain {
    const char *steps, *extra;
  };
  // Many pixels, and so few that threads share the channels.
  for (const Case& c : {Case{2, 8, 4, 4, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                        Case{1, 16, 16, 16, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}})
    for (int threads : {1, 2})
      for (const Chain& chain :
           {Chain{"%2 = add(%c, %ob) : @ %3 = relu(%2) : @ return %3", "b"},
            Chain{"%2 = add(%c, %ob) : @ %3 = silu(%2) : @ return %3", "b"},
            Chain{"%2 = add(%c, %ob) : @ %3 = gelu(%2) : @ %4 = add(%3, %or) : @ return %4", "br"},
            Chain{"%2 = add(%c, %or) : @ %3 = relu(%2) : @ return %3", "r"}}) {
        CAPTURE(chain.steps);
        set_threads(threads);
        std::vector<Tensor> inputs = {random(DType::f32, input_of(c), 1)};
        for (const char* e = chain.extra; *e; ++e)
          inputs.push_back(
              random(DType::f32, *e == 'b' ? Dims{c.groups * c.outputs, 1, 1} : result_of(c), 3));
        check_node(text_of(c, chain.steps, chain.extra), inputs, kGrouped, Measure::absolute);
      }
  set_threads(0);
}

TEST_CASE("convolution in groups: NaN and infinities stay in their group and window") {
  for (int64_t inputs : {2, 4, 8}) {
    const Case c{1, 16 / inputs, inputs, inputs, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
    Tensor x = random(DType::f32, input_of(c), 1);
    x.set_double(inputs * 64 + 4 * 8 + 4, NAN);  // a channel of the second group
    const Tensor y = run_on_cpu(ir::parse_graph(text_of(c)), {x}, kGrouped)[0];
    for (int64_t i = 0; i < y.count(); ++i) {
      const int64_t channel = i / 64, row = i / 8 % 8, column = i % 8;
      const bool hit = channel / inputs == 1 && std::abs(row - 4) <= 1 && std::abs(column - 4) <= 1;
      CAPTURE(i);
      CHECK(std::isnan(y.get_double(i)) == hit);
    }
  }
}

TEST_CASE("convolution in groups says what it does not take") {
  const auto why = [](const Case& c) { return refusal(ir::parse_graph(text_of(c)), "cpu.grouped_conv"); };
  const Dims one = {1, 1}, none = {0, 0};
  CHECK(why({1, 1, 8, 8, {4, 4}, {3, 3}, one, one, one, one}) == "has no groups");
  CHECK(why({1, 8, 1, 1, {4, 4}, {3, 3}, one, one, one, one}) == "is depthwise");
  CHECK(why({1, 2, 40, 8, {4, 4}, {1, 1}, one, one, none, none}) == "has more than 32 inputs a group");
  CHECK(why({1, 2, 8, 8, {20, 20}, {17, 17}, one, one, none, none}) == "has more than 256 taps");
}
