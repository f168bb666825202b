// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "backend/cuda/harness.h"
#include "base/cat.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;

TEST_CASE("norms and softmax over rows of many sizes") {
  PELTON_NEEDS_GPU();
  for (const char* type : {"f16", "bf16", "f32"})
    for (int64_t size : {1, 7, 64, 256, 768, 1000, 1024, 2048, 4096, 9001})
      for (const char* op : {"layer_norm", "rms_norm", "softmax", "log_softmax"}) {
        const DType t = *dtype_from_name(type);
        const bool layer = std::string(op) == "layer_norm", norm = layer || std::string(op) == "rms_norm";
        const Dims x = {3, size};
        const std::string text = cat("graph \"g\"(%x: ", type, x, norm ? cat(", %s: ", type, Dims{size}) : "",
                                     layer ? cat(", %b: ", type, Dims{size}) : "", ") { %y = ", op, "(%x",
                                     norm ? ", %s" : "", layer ? ", %b" : "", ") {axis = 1",
                                     norm ? ", eps = 0.00001" : "", "} : ", type, x, " return %y }");
        CAPTURE(text);
        std::vector<Tensor> inputs = {random(t, x, 1)};
        if (norm) inputs.push_back(random(t, {size}, 2));
        if (layer) inputs.push_back(random(t, {size}, 3));
        GpuCase(text, inputs).check("cuda.norm");
      }
}

TEST_CASE("many short rows, statistics, norms over two axes") {
  PELTON_NEEDS_GPU();
  GpuCase("graph \"g\"(%x: f16[700,768]) { %y = softmax(%x) {axis = -1} : f16[700,768] return %y }",
          {random(DType::f16, {700, 768}, 1)})
      .check("cuda.norm");
  GpuCase(
      "graph \"g\"(%x: f32[5,4,6], %s: f32[4,6]) { %y, %m, %r = layer_norm(%x, %s) {axis = 1, eps = 0.001} : "
      "f32[5,4,6], f32[5,1,1], f32[5,1,1] return %y, %m, %r }",
      {random(DType::f32, {5, 4, 6}, 1), random(DType::f32, {4, 6}, 2)})
      .check("cuda.norm");
  GpuCase("graph \"g\"(%x: f32[0,8]) { %y = softmax(%x) {axis = 1} : f32[0,8] return %y }",
          {Tensor(DType::f32, {0, 8})})
      .check("cuda.norm");
}

TEST_CASE("sorting and picking: ties, NaN, signed zeros, every axis") {
  PELTON_NEEDS_GPU();
  for (const char* type : {"f32", "f16", "bf16", "i32", "i8", "u8", "u16"})
    for (const Dims& x : {Dims{3, 7}, Dims{2, 1, 5}, Dims{1, 3000}, Dims{2, 6500}, Dims{40, 3, 2}})
      for (bool down : {false, true}) {
        const DType t = *dtype_from_name(type);
        Tensor v = is_float(t) ? random(t, x, 1, -3, 3) : random(t, x, 1, 0, 100);
        if (is_float(t)) {
          // Values that repeat, both zeros, NaN.
          for (int64_t i = 0; i < v.count(); i += 3) v.set_double(i, std::round(v.get_double(i)));
          v.set_double(2, NAN);
          v.set_double(4, -0.0);
          v.set_double(5, 0.0);
        }
        for (int64_t axis = 0; axis < static_cast<int64_t>(x.size()); ++axis) {
          const std::string text = cat("graph \"g\"(%x: ", type, x, ") { %v, %i = sort(%x) {axis = ", axis,
                                       ", descending = ", down ? "true" : "false", "} : ", type, x, ", i64",
                                       x, " return %v, %i }");
          CAPTURE(text);
          GpuCase(text, {v}).check("cuda.sort");
          Dims y = x;
          y[static_cast<size_t>(axis)] = 1;
          const std::string pick = cat(
              "graph \"g\"(%x: ", type, x, ") { %i = ", down ? "arg_max" : "arg_min", "(%x) {axis = ", axis,
              ", keep_dims = true, last = ", axis ? "true" : "false", "} : i64", y, " return %i }");
          CAPTURE(pick);
          GpuCase(pick, {v}).check("cuda.arg");
        }
      }
}

TEST_CASE("the first few of long lines") {
  PELTON_NEEDS_GPU();
  for (int64_t k : {1, 5, 40, 2500})
    for (const Dims& x : {Dims{2, 5000}, Dims{1, 10001}}) {
      const Dims y = {x[0], k};
      const std::string text =
          cat("graph \"g\"(%x: f32", x, ") { %k = constant() {value = tensor<i64[]>{", k,
              "}} : i64[] %v, %i = topk(%x, %k) {axis = 1} : f32", y, ", i64", y, " return %v, %i }");
      CAPTURE(text);
      GpuCase(text, {random(DType::f32, x, 1)}).check("cuda.sort");
    }
}

TEST_CASE("running sums and products") {
  PELTON_NEEDS_GPU();
  for (const char* type : {"f32", "f16", "bf16", "f64", "i32", "i64"})
    for (const Dims& x : {Dims{3, 100}, Dims{2, 5, 3}, Dims{1, 1}, Dims{0, 4}})
      for (int flags = 0; flags < 4; ++flags)
        for (const char* op : {"cumsum", "cumprod"})
          for (int64_t axis = 0; axis < static_cast<int64_t>(x.size()); ++axis) {
            const DType t = *dtype_from_name(type);
            const std::string text =
                cat("graph \"g\"(%x: ", type, x, ") { %y = ", op, "(%x) {axis = ", axis,
                    ", exclusive = ", flags & 1 ? "true" : "false",
                    ", reverse = ", flags & 2 ? "true" : "false", "} : ", type, x, " return %y }");
            CAPTURE(text);
            GpuCase(text, {is_float(t) ? random(t, x, 1, 0.5, 1.5) : random(t, x, 1, -3, 4)})
                .check("cuda.scan");
          }
}

TEST_CASE("resampling in both layouts") {
  PELTON_NEEDS_GPU();
  struct Case {
    Dims x, y;
    const char* attrs;
  };
  const Case cases[] = {
      {{1, 3, 5, 6},
       {1, 3, 10, 12},
       "axes = [2,3], mode = \"nearest\", coordinates = \"asymmetric\", nearest = \"floor\""},
      {{2, 8, 5, 6}, {2, 8, 10, 9}, "axes = [2,3], mode = \"linear\", coordinates = \"half_pixel\""},
      {{1, 4, 9, 7}, {1, 4, 4, 5}, "axes = [2,3], mode = \"linear\", coordinates = \"align_corners\""},
      {{1, 2, 6, 6}, {1, 2, 13, 11}, "axes = [2,3], mode = \"cubic\", coordinates = \"half_pixel\""},
      {{1, 2, 12, 12}, {1, 2, 5, 4}, "axes = [2,3], mode = \"linear\", antialias = true"},
      {{2, 3, 9}, {2, 3, 20}, "axes = [2], mode = \"linear\""},
      {{1, 2, 3, 4, 5}, {1, 2, 6, 5, 7}, "axes = [2,3,4], mode = \"linear\""},
      {{2, 3, 4, 5},
       {2, 3, 8, 10},
       "axes = [0,1,2,3], scales = reals[1.0,1.0,2.0,2.0], mode = \"nearest\", coordinates = \"asymmetric\", "
       "nearest = "
       "\"floor\""},
      {{1, 3, 4, 5}, {1, 6, 4, 10}, "axes = [1,3], mode = \"linear\""}};
  for (const Case& c : cases)
    for (const char* type : {"f32", "f16"})
      for (const char* layout : {"", "{nhwc}"}) {
        const std::string text =
            cat("graph \"g\"(%x: ", type, c.x, layout, ") { %y = resample(%x) {dims = dims", c.y, ", ",
                c.attrs, "} : ", type, c.y, layout, " return %y }");
        CAPTURE(text);
        GpuCase(text, {random(*dtype_from_name(type), c.x, 1)}).check("cuda.resample");
      }
}
