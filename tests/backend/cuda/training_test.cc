// SPDX-License-Identifier: Apache-2.0
// Backward forms and the other ops that training adds, against the interpreter.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "backend/cuda/harness.h"
#include "base/cat.h"
#include "support/expect_error.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;

namespace {

constexpr const char* kTypes[] = {"f32", "bf16", "f16"};

Tensor labels(Dims dims, int64_t classes, int64_t ignored_every = 0) {
  Tensor t = random(DType::i64, std::move(dims), 7, 0, static_cast<double>(classes));
  if (ignored_every)
    for (int64_t i = 0; i < t.count(); i += ignored_every) t.set_int(i, -100);
  return t;
}

}  // namespace

TEST_CASE("batch norm in training: every layout, type and kind of size") {
  PELTON_NEEDS_GPU();
  for (const Dims& x : {Dims{4, 8, 5, 6}, Dims{2, 64, 14, 14}, Dims{3, 21, 7, 3}, Dims{16, 24},
                        Dims{2, 16, 40}, Dims{1, 1280, 1, 2}, Dims{8, 32, 33, 31}})
    for (const char* type : kTypes)
      for (const char* layout : {"", "{nhwc}"}) {
        if (*layout && x.size() != 4) continue;
        const DType t = *dtype_from_name(type);
        const Dims c = {x[1]};
        const std::string stats = cat("f32", c);
        const std::string text =
            cat("graph \"g\"(%x: ", type, x, layout, ", %s: ", stats, ", %b: ", stats, ", %m: ", stats,
                ", %v: ", stats,
                ") { %y, %nm, %nv, %bm, %br = batch_norm_train(%x, %s, %b, %m, %v) {eps = 0.001, "
                "momentum = 0.75} : ",
                type, x, layout, ", ", stats, ", ", stats, ", ", stats, ", ", stats,
                " return %y, %nm, %nv, %bm, %br }");
        CAPTURE(text);
        // A mean well away from zero.
        GpuCase(text, {random(t, x, 1, 1, 3), random(DType::f32, c, 2), random(DType::f32, c, 3),
                       random(DType::f32, c, 4), random(DType::f32, c, 5, 0, 1)})
            .check("cuda.batch_norm_train");
        const std::string back = cat("graph \"g\"(%g: ", type, x, layout, ", %x: ", type, x, layout,
                                     ", %s: ", stats, ", %m: ", stats, ", %r: ", stats,
                                     ") { %dx, %ds, %db = batch_norm_backward(%g, %x, %s, %m, %r) : ", type,
                                     x, layout, ", ", stats, ", ", stats, " return %dx, %ds, %db }");
        CAPTURE(back);
        GpuCase(back, {random(t, x, 1), random(t, x, 2), random(DType::f32, c, 3),
                       random(DType::f32, c, 4, -0.2, 0.2), random(DType::f32, c, 5, 0.5, 1)})
            .check("cuda.batch_norm_backward");
      }
}

TEST_CASE("gradients of layer_norm and rms_norm over rows of many sizes") {
  PELTON_NEEDS_GPU();
  for (const char* type : kTypes)
    for (int64_t size : {1, 7, 64, 256, 768, 1000, 1024, 2048, 4096, 5001})
      for (int64_t rows : {3, 600})
        for (bool layer : {true, false}) {
          if (rows == 600 && size > 1024) continue;
          const DType t = *dtype_from_name(type);
          const Dims x = {rows, size}, stat = {rows, 1};
          const std::string p = cat("f32", Dims{size});
          const std::string text =
              cat("graph \"g\"(%g: ", type, x, ", %x: ", type, x, layer ? cat(", %m: f32", stat) : "",
                  ", %r: f32", stat, ", %s: ", p, ") { %dx, %ds", layer ? ", %db" : "", " = ",
                  layer ? "layer" : "rms", "_norm_backward(%g, %x", layer ? ", %m" : "",
                  ", %r, %s) {axis = 1} : ", type, x, ", ", p, layer ? cat(", ", p) : "", " return %dx, %ds",
                  layer ? ", %db" : "", " }");
          CAPTURE(text);
          std::vector<Tensor> in = {random(t, x, 1), random(t, x, 2)};
          if (layer) in.push_back(random(DType::f32, stat, 3, -0.2, 0.2));
          in.push_back(random(DType::f32, stat, 4, 0.5, 1));
          in.push_back(random(DType::f32, {size}, 5));
          GpuCase(text, in).check("cuda.norm_backward");
        }
}

TEST_CASE("gradients of norms with a sum behind them") {
  PELTON_NEEDS_GPU();
  for (const char* type : kTypes)
    for (int64_t size : {7, 768, 5001}) {
      const DType t = *dtype_from_name(type);
      const Dims x = {40, size}, stat = {40, 1};
      const std::string p = cat("f32", Dims{size}), data = cat(type, x);
      const std::string text = cat(
          "graph \"g\"(%g: ", data, ", %x: ", data, ", %m: f32[40,1], %r: f32[40,1], %s: ", p, ", %o: ", data,
          ") { %dx, %ds, %db = layer_norm_backward(%g, %x, %m, %r, %s) {axis = 1} : ", data, ", ", p, ", ", p,
          " %y = add(%o, %dx) : ", data, " return %ds, %db, %y }");
      CAPTURE(text);
      GpuCase(text,
              {random(t, x, 1), random(t, x, 2), random(DType::f32, stat, 3, -0.2, 0.2),
               random(DType::f32, stat, 4, 0.5, 1), random(DType::f32, {size}, 5), random(t, x, 6)},
              {"norm_backward", {}, {}})
          .check("cuda.norm_backward");
    }
}

TEST_CASE("cross entropy and its gradient: rows that start anywhere, every reduction, ignored labels") {
  PELTON_NEEDS_GPU();
  for (const char* type : kTypes)
    for (const Dims& x : {Dims{5, 3}, Dims{33, 1000}, Dims{7, 50257}, Dims{600, 10}})
      for (const char* reduction : {"sum", "mean", "none"})
        for (bool weights : {true, false}) {
          if (weights && x[1] > 1000) continue;
          const DType t = *dtype_from_name(type);
          const Dims rows = {x[0]};
          const Dims loss = std::string(reduction) == "none" ? rows : Dims{};
          const std::string attrs = cat("{reduction = \"", reduction, "\", ignore = -100}");
          const std::string w = weights ? cat(", %w: ", type, Dims{x[1]}) : "";
          const std::string text =
              cat("graph \"g\"(%x: ", type, x, ", %l: i64", rows, w, ") { %y, %s = cross_entropy(%x, %l",
                  weights ? ", %w" : "", ") ", attrs, " : ", type, loss, ", f32", rows, " return %y, %s }");
          CAPTURE(text);
          std::vector<Tensor> in = {random(t, x, 1, -4, 4), labels(rows, x[1], 4)};
          if (weights) in.push_back(random(t, {x[1]}, 2, 0.5, 1.5));
          GpuCase(text, in).check("cuda.cross_entropy");
          const std::string back =
              cat("graph \"g\"(%g: ", type, loss, ", %x: ", type, x, ", %l: i64", rows, ", %s: f32", rows, w,
                  ") { %dx = cross_entropy_backward(%g, %x, %l, %s", weights ? ", %w" : "", ") ", attrs,
                  " : ", type, x, " return %dx }");
          CAPTURE(back);
          Tensor sums = random(DType::f32, rows, 3);
          for (int64_t r = 0; r < x[0]; ++r) {
            double sum = 0;
            for (int64_t k = 0; k < x[1]; ++k) sum += std::exp(in[0].get_double(r * x[1] + k));
            sums.set_double(r, std::log(sum));
          }
          std::vector<Tensor> back_in = {random(t, loss, 4, 0.5, 1), in[0], in[1], sums};
          if (weights) back_in.push_back(in[2]);
          GpuCase(back, back_in).check("cuda.cross_entropy");
        }
}

TEST_CASE("cross entropy: a NaN among values of -inf is not lost, wherever it stands") {
  PELTON_NEEDS_GPU();
  const double inf = std::numeric_limits<double>::infinity();
  for (const char* type : {"f32", "f16", "bf16"})
    for (int64_t at : {0, 1, 7, 8, 13, 4095, 8190}) {
      const DType t = *dtype_from_name(type);
      const std::string text =
          cat("graph \"g\"(%x: ", type, "[2,8200], %l: i64[2]) { %y, %s = cross_entropy(%x, ",
              "%l) {reduction = \"none\"} : ", type, "[2], f32[2] return %y, %s }");
      CAPTURE(text);
      CAPTURE(at);
      Tensor x(t, {2, 8200});
      for (int64_t i = 0; i < x.count(); ++i) x.set_double(i, i < 8200 ? -inf : 0);
      x.set_double(at, std::nan(""));
      GpuCase c(text, {x, Tensor::zeros(DType::i64, {2})});
      c.check("cuda.cross_entropy");
    }
}

TEST_CASE("cross entropy of logits of 16 bits yields a loss of f32 inside a group") {
  PELTON_NEEDS_GPU();
  const Dims x = {9, 501}, rows = {9};
  GpuCase(
      "graph \"g\"(%x: bf16[9,501], %l: i64[9]) { %w = cast(%x) {to = f32} : f32[9,501] %y, %s = "
      "cross_entropy(%w, %l) {reduction = \"sum\"} : f32[], f32[9] return %y, %s }",
      {random(DType::bf16, x, 1), labels(rows, 501)}, {"cross_entropy", {}, {}})
      .check("cuda.cross_entropy");
  GpuCase(
      "graph \"g\"(%g: f32[], %x: bf16[9,501], %l: i64[9], %s: f32[9]) { %w = cast(%x) {to = f32} : "
      "f32[9,501] %d = cross_entropy_backward(%g, %w, %l, %s) {reduction = \"sum\"} : f32[9,501] %y = "
      "cast(%d) "
      "{to = bf16} : bf16[9,501] return %y }",
      {random(DType::f32, {}, 4), random(DType::bf16, x, 1), labels(rows, 501),
       random(DType::f32, rows, 2, 6, 7)},
      {"cross_entropy", {}, {}})
      .check("cuda.cross_entropy");
}

TEST_CASE("gradients of pooling in both layouts: ties, pads, overlaps, ceil") {
  PELTON_NEEDS_GPU();
  struct Case {
    const char* op;
    Dims x, g;
    const char* attrs;
  };
  const Case cases[] = {
      {"max",
       {2, 16, 11, 12},
       {2, 16, 6, 6},
       "kernel = [3,3], strides = [2,2], low = dims[1,1], high = dims[1,1]"},
      {"max", {1, 3, 9, 9}, {1, 3, 4, 4}, "kernel = [3,3], strides = [2,2]"},
      {"max", {1, 8, 10, 7}, {1, 8, 5, 4}, "kernel = [2,2], strides = [2,2], ceil = true"},
      {"max", {1, 8, 20}, {1, 8, 8}, "kernel = [3], dilations = [2], strides = [2]"},
      {"max", {1, 8, 5, 6, 7}, {1, 8, 4, 5, 6}, "kernel = [2,2,2]"},
      {"avg", {2, 24, 7, 7}, {2, 24, 7, 7}, "kernel = [3,3], low = dims[1,1], high = dims[1,1]"},
      {"avg", {1, 16, 8, 8}, {1, 16, 4, 4}, "kernel = [2,2], strides = [2,2]"},
      {"avg",
       {1, 3, 9, 9},
       {1, 3, 5, 5},
       "kernel = [3,3], strides = [2,2], low = dims[1,1], high = dims[1,1], count_padding = true"},
      {"avg", {1, 8, 10, 10}, {1, 8, 5, 5}, "kernel = [3,3], strides = [2,2], ceil = true"},
      {"avg", {0, 8, 9, 9}, {0, 8, 4, 4}, "kernel = [3,3], strides = [2,2]"},
  };
  for (const Case& c : cases)
    for (const char* type : kTypes)
      for (const char* layout : {"", "{nhwc}"}) {
        const bool max = std::string(c.op) == "max";
        const DType t = *dtype_from_name(type);
        const std::string text =
            cat("graph \"g\"(%g: ", type, c.g, layout, max ? cat(", %x: ", type, c.x, layout) : "",
                ") { %y = ", c.op, "_pool_backward(%g", max ? ", %x" : "", ") {",
                max ? "" : cat("dims = dims", c.x, ", "), c.attrs, "} : ", type, c.x, layout, " return %y }");
        CAPTURE(text);
        std::vector<Tensor> in = {random(t, c.g, 1)};
        if (max) {
          Tensor x = random(t, c.x, 2);
          for (int64_t i = 0; i < x.count(); ++i) x.set_double(i, std::round(x.get_double(i)));
          in.push_back(x);
        }
        GpuCase(text, in).check("cuda.pool_backward");
      }
}

TEST_CASE("slices scattered and elements gathered: many to one place, negative indices") {
  PELTON_NEEDS_GPU();
  for (const char* type : kTypes)
    for (const char* reduction : {"add", "none"})
      for (const Dims& s :
           {Dims{50, 8, 1000}, Dims{5, 768, 200}, Dims{1, 12, 500}, Dims{90, 3, 70}, Dims{7, 1, 1}}) {
        const DType t = *dtype_from_name(type);
        const std::string text =
            cat("graph \"g\"(%x: ", type, Dims{s[0], s[1]}, ", %i: i64", Dims{s[2], 1}, ", %u: ", type,
                Dims{s[2], s[1]}, ") { %y = scatter_nd(%x, %i, %u) {reduction = \"", reduction,
                "\"} : ", type, Dims{s[0], s[1]}, " return %y }");
        CAPTURE(text);
        Tensor index =
            random(DType::i64, {s[2], 1}, 3, -static_cast<double>(s[0]), static_cast<double>(s[0]));
        GpuCase(text, {random(t, {s[0], s[1]}, 1), index, random(t, {s[2], s[1]}, 2, -0.1, 0.1)})
            .check("cuda.scatter");
      }
  for (const char* reduction : {"add", "none"}) {
    GpuCase(cat("graph \"g\"(%x: f32[3,4,5], %i: i32[2,6,2], %u: f32[2,6,5]) { %y = scatter_nd(%x, %i, %u) "
                "{reduction = \"",
                reduction, "\"} : f32[3,4,5] return %y }"),
            {random(DType::f32, {3, 4, 5}, 1), random(DType::i32, {2, 6, 2}, 2, 0, 3),
             random(DType::f32, {2, 6, 5}, 3)})
        .check("cuda.scatter");
    for (int64_t axis : {0, 1, 2})
      GpuCase(cat("graph \"g\"(%x: f32[4,6,5], %i: i64[3,4,5], %u: f32[3,4,5]) { %y = scatter_elements(%x, "
                  "%i, %u) "
                  "{axis = ",
                  axis, ", reduction = \"", reduction, "\"} : f32[4,6,5] return %y }"),
              {random(DType::f32, {4, 6, 5}, 1), random(DType::i64, {3, 4, 5}, 2, -4, 4),
               random(DType::f32, {3, 4, 5}, 3)})
          .check("cuda.scatter");
  }
  for (const char* type : {"f32", "bf16", "i64", "u8"})
    for (int64_t axis : {0, 1, 2}) {
      const DType t = *dtype_from_name(type);
      GpuCase(cat("graph \"g\"(%x: ", type,
                  "[4,6,5], %i: i64[3,4,5]) { %y = gather_elements(%x, %i) {axis = ", axis, "} : ", type,
                  "[3,4,5] return %y }"),
              {random(t, {4, 6, 5}, 1, 0, 50), random(DType::i64, {3, 4, 5}, 2, -4, 4)})
          .check("cuda.gather_elements");
    }
}

TEST_CASE("random numbers and dropout are those of the interpreter") {
  PELTON_NEEDS_GPU();
  const ir::RandomKey key{0x123456789abcdef0u, 77};
  for (const char* type : kTypes) {
    for (int64_t count : {1, 7, 4096, 10001})
      for (const char* op : {"random_uniform", "random_normal"}) {
        const std::string text =
            cat("graph \"g\"() { %y = ", op, "() {dims = dims", Dims{count}, ", dtype = ", type,
                ", seed = 5, stream = 9} : ", type, Dims{count}, " return %y }");
        CAPTURE(text);
        GpuCase(text, {}, {"", {}, key}).check("cuda.random");
      }
    for (int64_t count : {1, 9, 8192})
      for (double ratio : {0.0, 0.1, 0.5, 1.0}) {
        const DType t = *dtype_from_name(type);
        const std::string text = cat("graph \"g\"(%x: ", type, Dims{count},
                                     ", %r: f32[]) { %y, %m = dropout(%x, %r) {seed = 3} : ", type,
                                     Dims{count}, ", bool", Dims{count}, " return %y, %m }");
        CAPTURE(text);
        GpuCase(text, {random(t, {count}, 1), from_doubles(DType::f32, {}, {ratio})}, {"", {}, key})
            .check("cuda.dropout");
      }
  }
}

TEST_CASE("batch norm in training with an operand of channels behind it") {
  PELTON_NEEDS_GPU();
  const Dims x = {3, 16, 8, 8}, c = {16};
  for (const char* operand : {"[16,1,1]", "[3,16,1,1]", "[1,1,1,1]", "[3,16,8,8]"})
    for (const char* type : kTypes)
      for (const char* layout : {"", "{nhwc}"}) {
        const DType t = *dtype_from_name(type);
        const bool full = std::string_view(operand) == "[3,16,8,8]";
        const Dims dims = full                                        ? x
                          : std::string_view(operand) == "[16,1,1]"   ? Dims{16, 1, 1}
                          : std::string_view(operand) == "[3,16,1,1]" ? Dims{3, 16, 1, 1}
                                                                      : Dims{1, 1, 1, 1};
        const std::string like = cat(type, x, layout);
        const std::string text =
            cat("graph \"g\"(%x: ", like, ", %s: f32[16], %b: f32[16], %m: f32[16], %v: f32[16], %o: ", type,
                operand, full ? layout : "",
                ") { %n, %nm, %nv, %bm, %br = batch_norm_train(%x, %s, %b, %m, %v) {eps = 0.001, "
                "momentum = 0.75} : ",
                like, ", f32[16], f32[16], f32[16], f32[16] %z = add(%n, %o) : ", like,
                " %y = relu(%z) : ", like, " return %y, %nm, %nv, %bm, %br }");
        CAPTURE(text);
        GpuCase(text,
                {random(t, x, 1), random(DType::f32, c, 2), random(DType::f32, c, 3),
                 random(DType::f32, c, 4), random(DType::f32, c, 5, 0, 1), random(t, dims, 6)},
                {"batch_norm", {}, {}})
            .check("cuda.batch_norm_train");
      }
}

TEST_CASE("the gradient of a row's norm without rows") {
  PELTON_NEEDS_GPU();
  GpuCase(
      "graph \"g\"(%g: f32[0,7], %x: f32[0,7], %m: f32[0,1], %r: f32[0,1], %s: f32[7]) { %dx, %ds, %db = "
      "layer_norm_backward(%g, %x, %m, %r, %s) {axis = 1} : f32[0,7], f32[7], f32[7] return %dx, %ds, %db }",
      {random(DType::f32, {0, 7}, 1), random(DType::f32, {0, 7}, 2), random(DType::f32, {0, 1}, 3),
       random(DType::f32, {0, 1}, 4), random(DType::f32, {7}, 5)})
      .check("cuda.norm_backward");
}
