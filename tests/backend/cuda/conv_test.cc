// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <limits>

#include "backend/cuda/conv/problem.h"
#include "backend/cuda/harness.h"
#include "base/cat.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::test;
using namespace pelton::backend::cuda;

namespace {

struct Case {
  const char* op;
  Dims x, w, y;
  const char* attrs;
};
// Every way to compute one case, each judged by itself.
const Case kCases[] = {
    {"conv", {1, 3, 9, 8}, {16, 3, 3, 3}, {1, 16, 9, 8}, "low = dims[1,1], high = dims[1,1]"},
    {"conv",
     {2, 3, 31, 75},
     {32, 3, 3, 3},
     {2, 32, 16, 38},
     "strides = [2,2], low = dims[1,1], high = dims[1,1]"},
    {"conv",
     {1, 3, 29, 40},
     {64, 3, 7, 7},
     {1, 64, 15, 20},
     "strides = [2,2], low = dims[3,3], high = dims[3,3]"},
    {"conv", {2, 16, 7, 7}, {32, 16, 1, 1}, {2, 32, 7, 7}, ""},
    {"conv", {1, 40, 14, 14}, {24, 40, 1, 1}, {1, 24, 14, 14}, ""},
    {"conv", {3, 24, 9, 11}, {136, 24, 1, 1}, {3, 136, 9, 11}, ""},
    {"conv", {1, 112, 7, 7}, {320, 112, 1, 1}, {1, 320, 7, 7}, ""},
    {"conv", {1, 1152, 3, 3}, {48, 1152, 1, 1}, {1, 48, 3, 3}, ""},
    {"conv",
     {2, 16, 8, 8},
     {16, 16, 3, 3},
     {2, 16, 4, 4},
     "strides = [2,2], low = dims[1,1], high = dims[0,0]"},
    {"conv", {1, 64, 14, 14}, {64, 64, 3, 3}, {1, 64, 14, 14}, "low = dims[1,1], high = dims[1,1]"},
    {"conv", {1, 16, 5, 6}, {21, 16, 3, 3}, {1, 21, 3, 4}, ""},
    {"conv",
     {3, 20, 13, 11},
     {140, 20, 3, 3},
     {3, 140, 7, 6},
     "strides = [2,2], low = dims[1,1], high = dims[1,1]"},
    {"conv", {1, 512, 4, 4}, {36, 512, 3, 3}, {1, 36, 4, 4}, "low = dims[1,1], high = dims[1,1]"},
    {"conv", {1, 16, 10, 10}, {32, 8, 3, 3}, {1, 32, 6, 6}, "groups = 2, dilations = [2,2]"},
    {"conv",
     {1, 8, 12, 9},
     {16, 8, 5, 3},
     {1, 16, 4, 7},
     "strides = [2,1], low = dims[0,0], high = dims[0,0]"},
    {"conv", {1, 32, 9, 9}, {32, 1, 3, 3}, {1, 32, 9, 9}, "groups = 32, low = dims[1,1], high = dims[1,1]"},
    {"conv",
     {2, 24, 12, 12},
     {24, 1, 5, 5},
     {2, 24, 6, 6},
     "groups = 24, strides = [2,2], low = dims[1,1], high = dims[2,2]"},
    {"conv",
     {1, 16, 40, 41},
     {16, 1, 3, 3},
     {1, 16, 20, 21},
     "groups = 16, strides = [2,2], low = dims[1,1], high = dims[1,1]"},
    {"conv", {1, 40, 9, 9}, {40, 1, 5, 5}, {1, 40, 9, 9}, "groups = 40, low = dims[2,2], high = dims[2,2]"},
    {"conv", {1, 6, 7, 7}, {6, 1, 7, 7}, {1, 6, 7, 7}, "groups = 6, low = dims[3,3], high = dims[3,3]"},
    {"conv", {1, 6, 7, 7}, {12, 1, 3, 3}, {1, 12, 5, 5}, "groups = 6"},
    {"conv", {2, 16, 20}, {16, 16, 5}, {2, 16, 16}, ""},
    {"conv", {1, 16, 4, 5, 6}, {16, 16, 2, 2, 2}, {1, 16, 3, 4, 5}, ""},
    {"conv_transpose", {1, 16, 5, 5}, {16, 16, 3, 3}, {1, 16, 11, 11}, "strides = [2,2]"},
    {"conv_transpose", {2, 16, 4, 4}, {16, 8, 2, 2}, {2, 16, 8, 8}, "strides = [2,2], groups = 2"},
    {"conv_transpose",
     {1, 8, 4, 5},
     {8, 16, 3, 3},
     {1, 16, 8, 10},
     "strides = [2,2], low = dims[1,1], high = dims[1,1], output_padding = [1,1]"},
    {"conv", {1, 8, 1, 1}, {8, 8, 1, 1}, {1, 8, 1, 1}, ""},
    {"conv", {0, 8, 4, 4}, {8, 8, 3, 3}, {0, 8, 2, 2}, ""},
};

std::string text_of(const Case& c, const std::string& t, const std::string& layout, bool bias) {
  const std::string l = layout.empty() ? "" : cat("{", layout, "}");
  return cat("graph \"g\"(%x: ", t, c.x, l, ", %w: ", t, c.w, bias ? cat(", %b: ", t, Dims{c.y[1]}) : "",
             ") { %y = ", c.op, "(%x, %w", bias ? ", %b" : "", ") {", c.attrs, "} : ", t, c.y, l,
             " return %y }");
}

ConvMethods every_method(const ConvProblem& p) {
  ConvMethods m;
  if (p.y.count() == 0) return m;
  if (p.gate_input >= 0) {
    add_gemm_methods(p, 100, "", m);
    return m;
  }
  add_depthwise_methods(p, m);
  add_stem_methods(p, m);
  add_gemm_methods(p, 100, "", m);
  add_f32_methods(p, 100, "", m);
  add_product_methods(p, "", m);
  add_cudnn_methods(p, "", m);
  add_direct_method(p, m);
  return m;
}

void check_methods(GpuCase& c, const ConvProblem& p, const ConvMethods& methods, bool without_cudnn = false) {
  for (const auto& m : methods) {
    CAPTURE(m->name());
    if (without_cudnn && m->name().starts_with("cudnn")) continue;
    c.check(
        [&](const backend::RunArgs& args) {
          ConvBuffers b;
          b.x = args.in[static_cast<size_t>(p.x_input)];
          b.w = m->packed() ? nullptr : args.in[static_cast<size_t>(p.w_input)];
          b.gate = p.gate_input < 0 ? nullptr : args.in[static_cast<size_t>(p.gate_input)];
          b.y = args.out[0];
          b.scratch = args.scratch;
          b.steps = p.steps.bind(args);
          m->run(b, static_cast<cudaStream_t>(args.stream));
        },
        m->scratch_bytes());
  }
}
void check_methods(GpuCase& c, bool without_cudnn = false, bool tf32 = false) {
  device::Target target = *gpu();
  target.tf32 = tf32;
  const ConvProblem p(c.instance(), target);
  check_methods(c, p, every_method(p), without_cudnn);
}

}  // namespace

TEST_CASE("every way to compute a convolution, in every layout and type") {
  PELTON_NEEDS_GPU();
  for (const Case& c : kCases)
    for (const char* type : {"f16", "bf16", "f32"})
      for (const char* layout : {"nhwc", ""})
        for (bool constant : {true, false}) {
          if (!constant && std::string(type) == "bf16") continue;
          const DType t = *dtype_from_name(type);
          const std::string text = text_of(c, type, layout, true);
          CAPTURE(text);
          GpuCase g(text, {random(t, c.x, 1), random(t, c.w, 2), random(t, {c.y[1]}, 3)},
                    {"", {false, constant, constant}, {}});
          REQUIRE(g.refusal("cuda.conv") == "");
          check_methods(g);
        }
}

TEST_CASE("depthwise convolutions whose rows are taken in runs, as where they fill the GPU") {
  PELTON_NEEDS_GPU();
  device::Target target = *gpu();
  target.multiprocessors = 1;
  for (const Case& c : {Case{"conv",
                             {4, 32, 12, 13},
                             {32, 1, 3, 3},
                             {4, 32, 12, 13},
                             "groups = 32, low = dims[1,1], high = dims[1,1]"},
                        Case{"conv",
                             {4, 32, 23, 26},
                             {32, 1, 3, 3},
                             {4, 32, 12, 13},
                             "groups = 32, strides = [2,2], low = dims[1,1], high = dims[1,1]"},
                        Case{"conv",
                             {4, 24, 12, 13},
                             {24, 1, 5, 5},
                             {4, 24, 12, 13},
                             "groups = 24, low = dims[2,2], high = dims[2,2]"},
                        Case{"conv",
                             {4, 32, 23, 26},
                             {32, 1, 5, 5},
                             {4, 32, 12, 13},
                             "groups = 32, strides = [2,2], low = dims[2,2], high = dims[2,2]"}})
    for (const char* type : {"f16", "bf16", "f32"})
      for (bool bias : {true, false}) {
        const DType t = *dtype_from_name(type);
        const std::string text = text_of(c, type, "nhwc", bias);
        CAPTURE(text);
        std::vector<Tensor> in = {random(t, c.x, 1), random(t, c.w, 2)};
        if (bias) in.push_back(random(t, {c.y[1]}, 3));
        GpuCase g(text, in);
        const ConvProblem p(g.instance(), target);
        ConvMethods methods;
        add_depthwise_methods(p, methods);
        REQUIRE(!methods.empty());
        check_methods(g, p, methods);
      }
}

TEST_CASE("few channels come in plain and leave channels last") {
  PELTON_NEEDS_GPU();
  for (const char* type : {"f16", "bf16"}) {
    const DType t = *dtype_from_name(type);
    GpuCase g(cat("graph \"g\"(%x: ", type, "[2,3,33,70], %w: ", type,
                  "[40,3,3,3]) { %y = conv(%x, %w) {strides = [2,2], low = dims[1,1], high = dims[1,1]} : ",
                  type, "[2,40,17,35]{nhwc} return %y }"),
              {random(t, {2, 3, 33, 70}, 1), random(t, {40, 3, 3, 3}, 2)}, {"", {false, true}, {}});
    REQUIRE(g.refusal("cuda.conv") == "");
    check_methods(g);
  }
}

TEST_CASE("what follows a convolution is applied in the same kernel") {
  PELTON_NEEDS_GPU();
  struct Steps {
    const char *inputs, *steps, *last;
    std::vector<Dims> dims;
  };
  const Steps all[] = {
      {", %b: T[32,1,1], %r: T[2,32,6,6]L",
       "%1 = add(%0, %b) : Y %2 = add(%1, %r) : Y %3 = relu(%2) : Y",
       "%3",
       {{32, 1, 1}, {2, 32, 6, 6}}},
      {", %b: T[32,1,1]", "%1 = add(%0, %b) : Y %2 = silu(%1) : Y", "%2", {{32, 1, 1}}},
      {", %s: T[1,32,1,1]", "%1 = mul(%0, %s) : Y %2 = hard_swish(%1) : Y", "%2", {{1, 32, 1, 1}}},
      {", %g: T[2,32,1,1]", "%1 = mul(%0, %g) : Y %2 = gelu(%1) : Y", "%2", {{2, 32, 1, 1}}},
      {", %r: T[2,32,6,6]L",
       "%1 = sub(%0, %r) : Y %2 = leaky_relu(%1) {alpha = 0.1} : Y",
       "%2",
       {{2, 32, 6, 6}}},
      {", %p: T[32,1,1]",
       "%1 = prelu(%0, %p) : Y %2 = sigmoid(%1) : Y %3 = max(%2, %p) : Y",
       "%3",
       {{32, 1, 1}}},
  };
  struct Shape {
    Dims w;
    const char* attrs;
  };
  const Shape shapes[] = {{{32, 32, 3, 3}, "low = dims[1,1], high = dims[1,1]"},
                          {{32, 32, 1, 1}, ""},
                          {{32, 1, 3, 3}, "groups = 32, low = dims[1,1], high = dims[1,1]"}};
  for (const char* type : {"f16", "f32"})
    for (const char* layout : {"{nhwc}", ""})
      for (const Shape& s : shapes)
        for (const Steps& c : all) {
          const DType t = *dtype_from_name(type);
          const std::string y = cat(type, "[2,32,6,6]", layout);
          std::string text =
              cat("graph \"g\"(%x: T[2,32,6,6]L, %w: T", s.w, c.inputs, ") { %0 = conv(%x, %w) {", s.attrs,
                  "} : Y ", c.steps, " return ", c.last, " }");
          std::string full;
          for (char ch : text)
            full += ch == 'T'   ? std::string(type)
                    : ch == 'L' ? std::string(layout)
                    : ch == 'Y' ? y
                                : std::string(1, ch);
          CAPTURE(full);
          std::vector<Tensor> inputs = {random(t, {2, 32, 6, 6}, 1), random(t, s.w, 2, -1, 1)};
          for (size_t i = 0; i < c.dims.size(); ++i) inputs.push_back(random(t, c.dims[i], 3 + i));
          GpuCase g(full, inputs, {"conv", {false, true}, {}});
          REQUIRE(g.refusal("cuda.conv") == "");
          check_methods(g);
          g.check("cuda.conv");
        }
}

TEST_CASE("NaN goes through an activation behind a convolution, in every way to compute it") {
  PELTON_NEEDS_GPU();
  for (const char* type : {"f16", "bf16", "f32"})
    for (const char* layout : {"{nhwc}", ""})
      for (const char* steps : {"%1 = add(%0, %b) : Y %y = relu(%1) : Y", "%y = relu(%0) : Y"})
        for (const Dims& w : {Dims{32, 32, 3, 3}, Dims{32, 32, 1, 1}, Dims{32, 1, 3, 3}}) {
          const DType t = *dtype_from_name(type);
          const int64_t pad = w[2] / 2, groups = 32 / w[1];
          std::string text =
              cat("graph \"g\"(%x: Y, %w: ", type, w, ", %b: ", type,
                  "[32,1,1]) { %0 = conv(%x, %w) {groups = ", groups, ", low = dims[", pad, ",", pad,
                  "], high = dims[", pad, ",", pad, "]} : Y ", steps, " return %y }");
          const std::string y = cat(type, "[2,32,6,6]", layout);
          for (size_t at; (at = text.find('Y')) != text.npos;) text.replace(at, 1, y);
          CAPTURE(text);
          Tensor x = random(t, {2, 32, 6, 6}, 1);
          x.set_double(100, std::numeric_limits<double>::quiet_NaN());
          GpuCase g(text, {x, random(t, w, 2), random(t, {32, 1, 1}, 3)}, {"conv", {false, true}, {}});
          REQUIRE(g.refusal("cuda.conv") == "");
          // Plans of cuDNN may compute groups as one product with zeros: NaN reaches other groups.
          check_methods(g, groups > 1);
        }
}

TEST_CASE("NaN goes through a relu in plans that round to TF32") {
  PELTON_NEEDS_GPU();
  for (const Dims& w : {Dims{32, 32, 3, 3}, Dims{32, 32, 1, 1}}) {
    const int64_t pad = w[2] / 2;
    const std::string text =
        cat("graph \"g\"(%x: f32[2,32,6,6]{nhwc}, %w: f32", w, ") { %0 = conv(%x, %w) {low = dims[", pad, ",",
            pad, "], high = dims[", pad, ",", pad,
            "]} : f32[2,32,6,6]{nhwc} %y = relu(%0) : f32[2,32,6,6]{nhwc} return %y }");
    // NaN and numbers that TF32 holds: what is finite is exact enough for the f32 bound.
    Tensor x = Tensor::zeros(DType::f32, {2, 32, 6, 6}), v = Tensor::zeros(DType::f32, w);
    for (int64_t i = 0; i < x.count(); ++i) x.set_double(i, static_cast<double>(i % 17 - 8) / 8);
    for (int64_t i = 0; i < v.count(); ++i) v.set_double(i, static_cast<double>(i % 13 - 6) / 8);
    x.set_double(100, std::numeric_limits<double>::quiet_NaN());
    GpuCase g(text, {x, v}, {"conv", {false, true}, {}});
    check_methods(g, false, true);
  }
}

TEST_CASE("a factor of each image and channel in front of a convolution") {
  PELTON_NEEDS_GPU();
  struct Gated {
    Dims x;
    int64_t k, most;  // results a place; ways to compute it, at least
  };
  // Tiles within an image, over several, and over more images than some tiles have room for.
  for (const Gated& c :
       {Gated{{1, 96, 14, 14}, 24, 9}, Gated{{3, 72, 7, 7}, 40, 9}, Gated{{40, 136, 1, 1}, 8, 9},
        Gated{{300, 1152, 1, 1}, 16, 2}, Gated{{2, 2048, 3, 2}, 30, 5}})
    for (const char* type : {"f16", "bf16"})
      for (const char* product : {"mul(%x, %s)", "mul(%s, %x)"}) {
        if (c.x[2] == 1 && product[5] == 's')
          continue;  // either may then be the factor; the first is the data
        const DType t = *dtype_from_name(type);
        const Dims y = {c.x[0], c.k, c.x[2], c.x[3]}, s = {c.x[0], c.x[1], 1, 1}, w = {c.k, c.x[1], 1, 1};
        const std::string text =
            cat("graph \"g\"(%x: ", type, c.x, "{nhwc}, %s: ", type, s, ", %w: ", type, w, ", %r: ", type, y,
                "{nhwc}) { %g = ", product, " : ", type, c.x, "{nhwc} %c = conv(%g, %w) : ", type, y,
                "{nhwc} %y = add(%c, %r) : ", type, y, "{nhwc} return %y }");
        CAPTURE(text);
        GpuCase g(text, {random(t, c.x, 1), random(t, s, 2), random(t, w, 3, -1, 1), random(t, y, 4)},
                  {"conv", {false, false, true}, {}});
        REQUIRE(g.refusal("cuda.conv") == "");
        const ConvProblem p(g.instance(), *gpu());
        CHECK(every_method(p).size() >= static_cast<size_t>(c.most));
        check_methods(g);
        g.check("cuda.conv");
      }
  // Without its window of one place, and in f32.
  for (const char* other : {"f16 3", "f32 1"}) {
    const std::string type(other, 3), k(other + 4);
    const std::string text =
        cat("graph \"g\"(%x: ", type, "[1,16,8,8]{nhwc}, %s: ", type, "[1,16,1,1], %w: ", type, "[8,16,", k,
            ",", k, "]) { %g = mul(%x, %s) : ", type, "[1,16,8,8]{nhwc} %y = conv(%g, %w) : ", type, "[1,8,",
            k == "3" ? "6,6" : "8,8", "]{nhwc} return %y }");
    const DType t = *dtype_from_name(type);
    const int64_t size = k == "3" ? 3 : 1;
    GpuCase g(text,
              {random(t, {1, 16, 8, 8}, 1), random(t, {1, 16, 1, 1}, 2), random(t, {8, 16, size, size}, 3)},
              {"conv", {}, {}});
    CHECK(g.refusal("cuda.conv").find(k == "3" ? "window" : "f16 or bf16") != std::string::npos);
  }
}

TEST_CASE("a depthwise convolution with the factors of its channels") {
  PELTON_NEEDS_GPU();
  struct Excited {
    Dims x;
    int64_t window, stride, hidden;
  };
  for (const Excited& c : {Excited{{1, 32, 66, 66}, 3, 1, 8}, Excited{{2, 96, 15, 13}, 3, 2, 4},
                           Excited{{1, 240, 28, 28}, 5, 1, 10}, Excited{{1, 672, 14, 14}, 5, 2, 28},
                           Excited{{3, 1152, 7, 7}, 5, 1, 48}, Excited{{1, 8, 5, 5}, 3, 1, 2}})
    for (const char* type : {"f16", "bf16", "f32"})
      for (bool constant : {true, false}) {
        const DType t = *dtype_from_name(type);
        const int64_t n = c.x[0], k = c.x[1], pad = c.window / 2;
        if (std::string(type) != "f16" && !constant) continue;
        auto out = [&](int64_t size) { return (size + 2 * pad - c.window) / c.stride + 1; };
        const Dims y = {n, k, out(c.x[2]), out(c.x[3])}, w = {k, 1, c.window, c.window},
                   v1 = {c.hidden, k, 1, 1}, v2 = {k, c.hidden, 1, 1};
        auto of = [&](const Dims& d) { return cat(type, d); };
        const std::string text =
            cat("graph \"g\"(%x: ", of(c.x), "{nhwc}, %w: ", of(w), ", %b: ", of({k}), ", %v1: ", of(v1),
                ", %b1: ", of({c.hidden}), ", %v2: ", of(v2), ") { %c = conv(%x, %w, %b) {groups = ", k,
                ", strides = [", c.stride, ",", c.stride, "], low = dims[", pad, ",", pad, "], high = dims[",
                pad, ",", pad, "]} : ", of(y), "{nhwc} %y = silu(%c) : ", of(y),
                "{nhwc} %m = reduce_mean(%y) {axes = [2,3], keep_dims = true} : ", of({n, k, 1, 1}),
                " %h = conv(%m, %v1, %b1) : ", of({n, c.hidden, 1, 1}),
                " %a = silu(%h) : ", of({n, c.hidden, 1, 1}), " %s = conv(%a, %v2) : ", of({n, k, 1, 1}),
                " %g = sigmoid(%s) : ", of({n, k, 1, 1}), " return %y, %g }");
        CAPTURE(text);
        GpuCase g(text,
                  {random(t, c.x, 1, -1, 1), random(t, w, 2, -1, 1), random(t, {k}, 3, -1, 1),
                   random(t, v1, 4, -1, 1), random(t, {c.hidden}, 5), random(t, v2, 6, -1, 1)},
                  {"excite", {false, constant, constant, constant, constant, constant}, {}});
        REQUIRE(g.refusal("cuda.excite") == "");
        g.check("cuda.excite");
        // As where there are few multiprocessors for the work: a thread then takes four places.
        device::Target small = *gpu();
        small.multiprocessors = 1;
        const auto kernel = cuda_registry().find("cuda.excite")->prepare(g.instance(), small);
        g.check(
            [&](const backend::RunArgs& args) {
              backend::RunArgs given = args;
              std::vector<const void*> in(args.in.begin(), args.in.end());
              for (size_t i = 0; i < in.size(); ++i)
                if (!kernel->reads(i)) in[i] = nullptr;
              given.in = in;
              kernel->run(given);
            },
            kernel->scratch_bytes());
      }
}

TEST_CASE("convolutions refuse what they cannot take, by name") {
  PELTON_NEEDS_GPU();
  GpuCase g("graph \"g\"(%x: f64[1,3,4,4], %w: f64[2,3,1,1]) { %y = conv(%x, %w) : f64[1,2,4,4] return %y }",
            {random(DType::f64, {1, 3, 4, 4}, 1), random(DType::f64, {2, 3, 1, 1}, 2)});
  CHECK(g.refusal("cuda.conv") == "needs f32, f16 or bf16, got f64");
}
