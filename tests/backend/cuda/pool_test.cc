// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "backend/cuda/harness.h"
#include "base/cat.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;

TEST_CASE("pooling in every layout and type") {
  PELTON_NEEDS_GPU();
  struct Case {
    const char* op;
    Dims x, y;
    const char* attrs;
  };
  const Case cases[] = {
      {"max_pool", {2, 16, 9, 9}, {2, 16, 4, 4}, "kernel = [3,3], strides = [2,2]"},
      {"max_pool",
       {1, 64, 12, 13},
       {1, 64, 6, 7},
       "kernel = [3,3], strides = [2,2], low = dims[1,1], high = dims[1,1]"},
      {"max_pool", {1, 5, 8, 8}, {1, 5, 4, 4}, "kernel = [3,3], strides = [2,2], ceil = true"},
      {"max_pool", {1, 8, 10}, {1, 8, 4}, "kernel = [3], dilations = [2], strides = [2], low = dims[1]"},
      {"max_pool", {1, 8, 5, 6, 7}, {1, 8, 4, 5, 6}, "kernel = [2,2,2]"},
      {"avg_pool", {2, 24, 7, 7}, {2, 24, 7, 7}, "kernel = [3,3], low = dims[1,1], high = dims[1,1]"},
      {"avg_pool", {1, 16, 8, 8}, {1, 16, 4, 4}, "kernel = [2,2], strides = [2,2]"},
      {"avg_pool",
       {1, 3, 9, 9},
       {1, 3, 5, 5},
       "kernel = [3,3], strides = [2,2], low = dims[1,1], high = dims[1,1], count_padding = true"},
      {"avg_pool", {1, 8, 9, 9}, {1, 8, 4, 4}, "kernel = [3,3], strides = [2,2], ceil = true"},
      {"avg_pool", {0, 8, 9, 9}, {0, 8, 4, 4}, "kernel = [3,3], strides = [2,2]"},
  };
  for (const Case& c : cases)
    for (const char* type : {"f16", "bf16", "f32"})
      for (const char* layout : {"", "{nhwc}"}) {
        const std::string text = cat("graph \"g\"(%x: ", type, c.x, layout, ") { %y = ", c.op, "(%x) {",
                                     c.attrs, "} : ", type, c.y, layout, " return %y }");
        CAPTURE(text);
        GpuCase(text, {random(*dtype_from_name(type), c.x, 1)}).check("cuda.pool");
      }
}

TEST_CASE("max pooling says where its results came from, and NaN wins") {
  PELTON_NEEDS_GPU();
  for (const char* order : {"true", "false"}) {
    Tensor x = random(DType::f32, {2, 3, 6, 5}, 1);
    x.set_double(7, NAN);
    GpuCase(cat("graph \"g\"(%x: f32[2,3,6,5]) { %y, %i = max_pool(%x) {kernel = [2,3], strides = [1,2], "
                "row_major = ",
                order, "} : f32[2,3,5,2], i64[2,3,5,2] return %y, %i }"),
            {x})
        .check("cuda.pool");
  }
}

TEST_CASE("means and sums over places") {
  PELTON_NEEDS_GPU();
  for (const char* op : {"reduce_mean", "reduce_sum"})
    for (const char* type : {"f16", "bf16", "f32"})
      for (const Dims& x : {Dims{1, 8, 7, 7}, Dims{3, 136, 5, 4}, Dims{2, 21, 9, 1}, Dims{1, 16, 1, 1}}) {
        const std::string text =
            cat("graph \"g\"(%x: ", type, x, "{nhwc}) { %y = ", op,
                "(%x) {axes = [2,3], keep_dims = true} : ", type, "[", x[0], ",", x[1], ",1,1] return %y }");
        CAPTURE(text);
        GpuCase(text, {random(*dtype_from_name(type), x, 1)}).check("cuda.channel_mean");
      }
}

TEST_CASE("squeeze and excite in one launch") {
  PELTON_NEEDS_GPU();
  struct Case {
    Dims x;
    int64_t hidden;
    const char *inner, *outer;
  };
  const Case cases[] = {{{1, 32, 14, 14}, 8, "silu", "sigmoid"},     {{2, 96, 7, 7}, 4, "silu", "sigmoid"},
                        {{3, 144, 5, 3}, 6, "relu", "hard_sigmoid"}, {{1, 672, 4, 4}, 28, "silu", "sigmoid"},
                        {{1, 1152, 3, 3}, 48, "silu", "sigmoid"},    {{1, 8, 1, 1}, 1, "relu", "sigmoid"},
                        {{40, 40, 2, 2}, 10, "relu", "sigmoid"},     {{2, 24, 25, 24}, 6, "silu", "sigmoid"},
                        {{1, 1024, 2, 2}, 600, "relu", "sigmoid"}};
  for (const Case& c : cases)
    for (const char* type : {"f16", "bf16", "f32"})
      for (bool bias : {true, false}) {
        const DType t = *dtype_from_name(type);
        const int64_t n = c.x[0], channels = c.x[1];
        auto of = [&](const Dims& d) { return cat(type, d); };
        const Dims w1 = {c.hidden, channels, 1, 1}, w2 = {channels, c.hidden, 1, 1};
        const std::string hard = std::string(c.outer) == "hard_sigmoid" ? " {alpha = 0.2, beta = 0.5}" : "";
        const std::string text =
            cat("graph \"g\"(%x: ", of(c.x), "{nhwc}, %w1: ", of(w1), ", %w2: ", of(w2),
                bias ? cat(", %b1: ", of({c.hidden}), ", %b2: ", of({channels})) : "",
                ") { %m = reduce_mean(%x) {axes = [2,3], keep_dims = true} : ", of({n, channels, 1, 1}),
                " %h = conv(%m, %w1", bias ? ", %b1" : "", ") : ", of({n, c.hidden, 1, 1}), " %a = ", c.inner,
                "(%h) : ", of({n, c.hidden, 1, 1}), " %s = conv(%a, %w2", bias ? ", %b2" : "",
                ") : ", of({n, channels, 1, 1}), " %g = ", c.outer, "(%s)", hard, " : ",
                of({n, channels, 1, 1}), " %y = mul(%x, %g) : ", of(c.x), "{nhwc} return %y }");
        CAPTURE(text);
        std::vector<Tensor> inputs = {random(t, c.x, 1), random(t, w1, 2, -1, 1), random(t, w2, 3, -1, 1)};
        if (bias) {
          inputs.push_back(random(t, {c.hidden}, 4));
          inputs.push_back(random(t, {channels}, 5));
        }
        GpuCase(text, inputs, {"squeeze_excite", {false, false, bias}, {}}).check("cuda.squeeze_excite");
      }
}

TEST_CASE("squeeze and excite with biases that are constants of the group") {
  PELTON_NEEDS_GPU();
  GpuCase(
      "graph \"g\"(%x: f16[2,16,4,4]{nhwc}, %w1: f16[4,16,1,1], %w2: f16[16,4,1,1]) {"
      " %b = constant() {value = tensor<f16[4]>{0.5, 0.5, 0.5, 0.5}} : f16[4]"
      " %m = reduce_mean(%x) {axes = [2,3], keep_dims = true} : f16[2,16,1,1] %h = conv(%m, %w1, %b) : "
      "f16[2,4,1,1]"
      " %a = relu(%h) : f16[2,4,1,1] %s = conv(%a, %w2) : f16[2,16,1,1] %g = sigmoid(%s) : f16[2,16,1,1]"
      " %y = mul(%g, %x) : f16[2,16,4,4]{nhwc} return %y }",
      {random(DType::f16, {2, 16, 4, 4}, 1), random(DType::f16, {4, 16, 1, 1}, 2),
       random(DType::f16, {16, 4, 1, 1}, 3)},
      {"squeeze_excite", {false, true, true}, {}})
      .check("cuda.squeeze_excite");
}

TEST_CASE("squeeze and excite needs a factor for each channel") {
  GpuCase one_factor(
      "graph \"g\"(%x: f16[2,16,4,4]{nhwc}, %w1: f16[4,16,1,1], %w2: f16[1,4,1,1]) {"
      " %m = reduce_mean(%x) {axes = [2,3], keep_dims = true} : f16[2,16,1,1] %h = conv(%m, %w1) : "
      "f16[2,4,1,1] %a = relu(%h) : f16[2,4,1,1] %s = conv(%a, %w2) : f16[2,1,1,1] %g = sigmoid(%s) : "
      "f16[2,1,1,1] %y = mul(%x, %g) : f16[2,16,4,4]{nhwc} return %y }",
      {random(DType::f16, {2, 16, 4, 4}, 1), random(DType::f16, {4, 16, 1, 1}, 2),
       random(DType::f16, {1, 4, 1, 1}, 3)},
      {"squeeze_excite", {}, {}});
  CHECK(one_factor.refusal("cuda.squeeze_excite") == "makes 1 factors of 16 channels");
}

TEST_CASE("pooling of a long axis says where its results came from") {
  PELTON_NEEDS_GPU();
  GpuCase(
      "graph \"g\"(%x: f16[1,1,4194310]) { %y, %i = max_pool(%x) {kernel = [5], strides = [5]} : "
      "f16[1,1,838862], i64[1,1,838862] return %y, %i }",
      {random(DType::f16, {1, 1, 4194310}, 1)})
      .check("cuda.pool");
}

TEST_CASE("means over the places of more images than an axis of a grid has blocks") {
  PELTON_NEEDS_GPU();
  GpuCase(
      "graph \"g\"(%x: f16[65541,8,2,1]{nhwc}) { %y = reduce_mean(%x) {axes = [2,3], keep_dims = true} : "
      "f16[65541,8,1,1] return %y }",
      {random(DType::f16, {65541, 8, 2, 1}, 1)})
      .check("cuda.channel_mean");
}
