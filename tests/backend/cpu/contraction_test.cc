// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "base/thread_pool.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::test;

namespace {

constexpr Measure kSums = Measure::absolute;

std::string conv_text(const std::string& op, const std::string& t, const Dims& x, const Dims& w,
                      const Dims& y, const std::string& attrs, const std::string& layout = "",
                      bool bias = false, int64_t outputs = 0) {
  const std::string l = layout.empty() ? "" : cat("{", layout, "}");
  return cat("graph \"g\"(%x: ", t, x, l, ", %w: ", t, w, bias ? cat(", %b: ", t, Dims{outputs}) : "",
             ") { %y = ", op, "(%x, %w", bias ? ", %b" : "", ") {", attrs, "} : ", t, y, l, " return %y }");
}

struct ConvCase {
  const char* op;
  Dims x, w, y;
  const char* attrs;
};
const ConvCase kConvs[] = {
    {"conv", {1, 3, 9, 8}, {16, 3, 3, 3}, {1, 16, 9, 8}, "low = dims[1,1], high = dims[1,1]"},
    {"conv", {2, 16, 7, 7}, {32, 16, 1, 1}, {2, 32, 7, 7}, ""},
    {"conv",
     {2, 16, 8, 8},
     {16, 16, 3, 3},
     {2, 16, 4, 4},
     "strides = [2,2], low = dims[1,1], high = dims[0,0]"},
    {"conv", {1, 32, 9, 9}, {32, 1, 3, 3}, {1, 32, 9, 9}, "groups = 32, low = dims[1,1], high = dims[1,1]"},
    {"conv", {1, 16, 10, 10}, {32, 8, 3, 3}, {1, 32, 6, 6}, "groups = 2, dilations = [2,2]"},
    {"conv", {2, 16, 20}, {16, 16, 5}, {2, 16, 16}, ""},
    {"conv", {1, 16, 4, 5, 6}, {16, 16, 2, 2, 2}, {1, 16, 3, 4, 5}, ""},
    {"conv_transpose", {1, 16, 5, 5}, {16, 16, 3, 3}, {1, 16, 11, 11}, "strides = [2,2]"},
    {"conv_transpose", {2, 16, 4, 4}, {16, 8, 2, 2}, {2, 16, 8, 8}, "strides = [2,2], groups = 2"},
};

}  // namespace

TEST_CASE("convolutions in every layout, with constant and with changing weights") {
  for (const ConvCase& c : kConvs)
    for (const char* type : {"f32", "bf16"})
      for (const char* layout : {"", "nhwc", "c16"})
        for (bool constant : {true, false}) {
          const DType t = *dtype_from_name(type);
          if (std::string(layout) == "c16" && c.x[1] % 16) continue;
          for (const backend::Implementation* item : cpu_registry().candidates(c.op)) {
            Options o;
            o.implementation = item->name;
            o.constant = {false, constant, constant};
            const std::string text = conv_text(c.op, type, c.x, c.w, c.y, c.attrs, layout, true, c.y[1]);
            if (!refusal(ir::parse_graph(text), o.implementation).empty()) continue;
            CAPTURE(o.implementation);
            check_node(text, {random(t, c.x, 1), random(t, c.w, 2), random(t, {c.y[1]}, 3)}, o, kSums);
          }
        }
}

TEST_CASE("8-bit convolution and product give exact sums") {
  const Dims x = {1, 16, 6, 6}, w = {32, 16, 3, 3}, y = {1, 32, 4, 4};
  for (const char* type : {"u8", "i8"}) {
    const DType t = *dtype_from_name(type);
    const double low = t == DType::u8 ? 0 : -128, high = t == DType::u8 ? 256 : 128;
    const std::string zero = cat("tensor<", type, "[]>{", 3, "}");
    check_node(cat("graph \"g\"(%x: ", type, x, ", %w: i8", w, ") { %z = constant() {value = ", zero,
                   "} : ", type, "[] %y = conv(%x, %w, _, %z) : i32", y, " return %y }"),
               {random(t, x, 1, low, high), random(DType::i8, w, 2, -128, 128)}, {"", {false, true}});
    check_node(
        cat("graph \"g\"(%a: ", type, "[5,33], %b: i8[33,17]) { %y = matmul(%a, %b) : i32[5,17] return %y }"),
        {random(t, {5, 33}, 1, low, high), random(DType::i8, {33, 17}, 2, -128, 128)}, {"", {false, true}});
  }
  check_node(
      "graph \"g\"(%a: u8[5,33], %b: u8[33,17], %z: u8[], %c: u8[17]) { %y = matmul(%a, %b, %z, %c) : "
      "i32[5,17] return %y }",
      {random(DType::u8, {5, 33}, 1, 0, 256), random(DType::u8, {33, 17}, 2, 0, 256),
       random(DType::u8, {}, 3, 0, 256), random(DType::u8, {17}, 4, 0, 256)});
}

TEST_CASE("matrix products: ranks, batches, transposed operands, empty sums") {
  struct Case {
    Dims a, b, y;
    const char* attrs;
  };
  const Case cases[] = {{{3, 4}, {4, 5}, {3, 5}, ""},
                        {{64, 100}, {100, 65}, {64, 65}, ""},
                        {{1, 768}, {768, 300}, {1, 300}, ""},
                        {{2, 7, 16}, {16, 9}, {2, 7, 9}, ""},
                        {{2, 3, 7, 16}, {2, 3, 16, 9}, {2, 3, 7, 9}, ""},
                        {{2, 1, 7, 16}, {3, 16, 9}, {2, 3, 7, 9}, ""},
                        {{2, 3, 7, 16}, {2, 3, 9, 16}, {2, 3, 7, 9}, "transpose_b = true"},
                        {{16, 7}, {16, 9}, {7, 9}, "transpose_a = true"},
                        {{16}, {16, 9}, {9}, ""},
                        {{3, 16}, {16}, {3}, ""},
                        {{16}, {16}, {}, ""},
                        {{3, 0}, {0, 5}, {3, 5}, ""},
                        {{0, 4}, {4, 5}, {0, 5}, ""}};
  for (const Case& c : cases)
    for (const char* type : {"f32", "bf16", "f16", "f64", "i32", "i64"})
      for (bool constant : {false, true}) {
        const DType t = *dtype_from_name(type);
        for (const backend::Implementation* item : cpu_registry().candidates("matmul")) {
          Options o;
          o.implementation = item->name;
          o.constant = {false, constant};
          const std::string text =
              cat("graph \"g\"(%a: ", type, c.a, ", %b: ", type, c.b, ") { %y = matmul(%a, %b) {", c.attrs,
                  "} : ", type, c.y, " return %y }");
          if (!refusal(ir::parse_graph(text), o.implementation).empty()) continue;
          CAPTURE(o.implementation);
          check_node(text, {random(t, c.a, 1), random(t, c.b, 2)}, o, kSums);
        }
      }
}

TEST_CASE("own products with a right side that is known beforehand") {
  struct Case {
    Dims a, b, y;
    const char* attrs;
  };
  const Case cases[] = {{{1, 300}, {300, 1000}, {1, 1000}, ""},
                        {{1, 300}, {33, 300}, {1, 33}, "transpose_b = true"},
                        {{16, 768}, {768, 49}, {16, 49}, ""},
                        {{2, 3, 7, 5}, {5, 17}, {2, 3, 7, 17}, ""},
                        {{4, 3}, {2, 3, 16}, {2, 4, 16}, ""},
                        {{3, 4, 5}, {3, 5, 2}, {3, 4, 2}, ""},
                        {{5}, {5, 6}, {6}, ""},
                        {{3, 5}, {5}, {3}, ""},
                        {{3, 0}, {0, 4}, {3, 4}, ""},
                        {{0, 3}, {3, 4}, {0, 4}, ""},
                        {{3, 4}, {4, 0}, {3, 0}, ""}};
  for (const Case& c : cases)
    for (const char* type : {"f32", "bf16", "f64", "i32"})
      for (bool constant : {false, true}) {
        const DType t = *dtype_from_name(type);
        if (t == DType::f64 && element_count(c.a) > 1000) continue;
        Options o;
        o.implementation = "cpu.contraction";
        o.constant = {false, constant};
        check_node(cat("graph \"g\"(%a: ", type, c.a, ", %b: ", type, c.b, ") { %y = matmul(%a, %b) {",
                       c.attrs, "} : ", type, c.y, " return %y }"),
                   {random(t, c.a, 1), random(t, c.b, 2)}, o, kSums);
      }
}

TEST_CASE("what follows a contraction is applied in the same kernel") {
  struct Case {
    const char *inputs, *steps, *last;
    std::vector<Dims> dims;
  };
  const std::string y = "f32[2,32,6,6]";
  const Case cases[] = {
      {", %b: f32[32,1,1], %r: f32[2,32,6,6]",
       "%1 = add(%0, %b) : Y %2 = add(%1, %r) : Y %3 = relu(%2) : Y",
       "%3",
       {{32, 1, 1}, {2, 32, 6, 6}}},
      {"", "%1 = silu(%0) : Y", "%1", {}},
      {"", "%1 = sigmoid(%0) : Y %2 = mul(%0, %1) : Y", "%2", {}},
      {", %s: f32[1,32,1,1]", "%1 = mul(%0, %s) : Y %2 = hard_swish(%1) : Y", "%2", {{1, 32, 1, 1}}},
      {"",
       "%lo = constant() {value = tensor<f32[]>{0}} : f32[] %hi = constant() {value = tensor<f32[]>{6}} : "
       "f32[] "
       "%1 = clamp(%0, %lo, %hi) : Y",
       "%1",
       {}},
      {", %g: f32[2,32,1,1]", "%1 = mul(%0, %g) : Y %2 = gelu(%1) : Y", "%2", {{2, 32, 1, 1}}},
      {", %p: f32[32,1,1]", "%1 = prelu(%0, %p) : Y %2 = sin(%1) : Y", "%2", {{32, 1, 1}}},
  };
  for (const Case& c : cases) {
    std::string steps = c.steps;
    for (size_t at; (at = steps.find('Y')) != steps.npos;) steps.replace(at, 1, y);
    const std::string head = "%x: f32[2,16,6,6], %w: f32[32,16,3,3]";
    std::string names;
    for (size_t i = 0; i + 1 < std::string(c.inputs).size(); ++i)
      if (c.inputs[i] == '%') names += cat(", %", std::string(1, c.inputs[i + 1]));
    const std::string text =
        cat("graph \"g\"(", head, c.inputs, ") { %out = fused(%x, %w", names, ") {body = graph \"b\"(", head,
            c.inputs, ") { %0 = conv(%x, %w) {low = dims[1,1], high = dims[1,1]} : ", y, " ", steps,
            " return ", c.last, " }, kind = \"conv\"} : ", y, " return %out }");
    std::vector<Tensor> inputs = {random(DType::f32, {2, 16, 6, 6}, 1),
                                  random(DType::f32, {32, 16, 3, 3}, 2)};
    for (size_t i = 0; i < c.dims.size(); ++i) inputs.push_back(random(DType::f32, c.dims[i], 3 + i));
    for (bool constant : {true, false}) {
      Options o;
      o.constant = {false, constant, constant};
      check_node(text, inputs, o, kSums);
    }
  }
}

TEST_CASE("a product with bias, activation and residual") {
  for (const char* type : {"f32", "bf16"}) {
    const DType t = *dtype_from_name(type);
    const std::string s = type;
    const std::string head =
        cat("%a: ", s, "[2,9,64], %w: ", s, "[64,48], %b: ", s, "[48], %r: ", s, "[2,9,48]");
    const std::string y = cat(s, "[2,9,48]");
    check_node(
        cat("graph \"g\"(", head, ") { %o = fused(%a, %w, %b, %r) {body = graph \"b\"(", head,
            ") { %0 = matmul(%a, %w) : ", y, " %1 = add(%0, %b) : ", y, " %2 = gelu(%1) : ", y,
            " %3 = add(%2, %r) : ", y, " return %3 }, kind = \"matmul\"} : ", y, " return %o }"),
        {random(t, {2, 9, 64}, 1), random(t, {64, 48}, 2), random(t, {48}, 3), random(t, {2, 9, 48}, 4)},
        {"", {false, true}}, kSums);
  }
}

TEST_CASE("refusals say what does not fit") {
  const ir::Graph g = ir::parse_graph(
      "graph \"g\"(%x: f64[1,3,4,4], %w: f64[2,3,1,1]) { %y = conv(%x, %w) : f64[1,2,4,4] return %y }");
  if (device::detect_cpu().isa >= device::CpuIsa::avx2)
    CHECK(refusal(g, "onednn.conv").find("f64") != std::string::npos);
  const ir::Graph small = ir::parse_graph(
      "graph \"g\"(%x: f4e2m1[4,4], %w: f4e2m1[4,4]) { %y = concat(%x, %w) {axis = 0} : f4e2m1[8,4] return "
      "%y }");
  CHECK(refusal(small, "cpu.concat").find("f4e2m1") != std::string::npos);
}

TEST_CASE("bits do not depend on the number of threads") {
  const char* const texts[] = {
      "graph \"g\"(%a: f32[3,5000], %b: f32[5000,40]) { %y = matmul(%a, %b) : f32[3,40] return %y }",
      "graph \"g\"(%a: f32[1,64,14,14]{nhwc}, %b: f32[64,64,3,3]) { %y = conv(%a, %b) : "
      "f32[1,64,12,12]{nhwc} return %y }",
      "graph \"g\"(%a: f32[1,2000], %b: f32[1,1]) { %y = softmax(%a) {axis = 1} : f32[1,2000] return %y }"};
  for (const char* text : texts) {
    const ir::Graph g = ir::parse_graph(text);
    std::vector<Tensor> inputs;
    for (ir::ValueId v : g.inputs)
      inputs.push_back(random(DType::f32, *as_dims(g.type(v).shape), 7 + v.index));
    Options o;
    o.constant = {false, true};
    set_threads(1);
    const Tensor one = run_on_cpu(g, inputs, o)[0];
    for (int threads : {2, 5}) {
      set_threads(threads);
      CHECK(run_on_cpu(g, inputs, o)[0].same_bytes(one));
    }
    set_threads(0);
  }
}

TEST_CASE("large images run one by one, the costly function behind each") {
  if (device::detect_cpu().isa < device::CpuIsa::avx2 || !cpu_registry().find("onednn.conv_tile")) return;
  const std::string y = "f32[3,64,50,42]";
  for (const char* layout : {"", "{nhwc}"})
    for (const char* function : {"silu", "gelu", "sigmoid", "tanh"})
      for (const char* shared : {"f32[3,64,50,42]", "f32[1,64,50,42]"}) {
        const std::string head =
            cat("%x: f32[3,8,50,42]", layout, ", %w: f32[64,8,1,1], %b: f32[64,1,1], %r: ", shared, layout);
        const std::string yl = cat(y, layout);
        const std::string text =
            cat("graph \"g\"(", head, ") { %out = fused(%x, %w, %b, %r) {body = graph \"b\"(", head,
                ") { %0 = conv(%x, %w) : ", yl, " %1 = add(%0, %b) : ", yl, " %2 = add(%1, %r) : ", yl,
                " %3 = ", function, "(%2) : ", yl, " return %3 }, kind = \"conv\"} : ", yl, " return %out }");
        const Dims r = shared[4] == '3' ? Dims{3, 64, 50, 42} : Dims{1, 64, 50, 42};
        Options o;
        o.implementation = "onednn.conv_tile";
        o.constant = {false, true, true};
        check_node(text,
                   {random(DType::f32, {3, 8, 50, 42}, 1), random(DType::f32, {64, 8, 1, 1}, 2),
                    random(DType::f32, {64, 1, 1}, 3), random(DType::f32, r, 4)},
                   o, kSums);
      }
}

// The library's own transposed convolution takes seconds to be made for a second of sound.
TEST_CASE("a transposed convolution over a long line is a convolution of its phases") {
  if (device::detect_cpu().isa < device::CpuIsa::avx2 || !cpu_registry().find("onednn.conv")) return;
  struct Line {
    Dims x, w, y;
    const char* attrs;
  };
  for (const Line& c :
       {Line{{1, 6, 2100}, {6, 3, 8}, {1, 3, 8400}, "strides = [4], low = dims[2], high = dims[2]"},
        Line{{2, 16, 4200}, {16, 8, 5}, {2, 8, 12598}, "strides = [3], low = dims[2], high = dims[2]"},
        Line{{1, 16, 4500}, {16, 16, 2}, {1, 16, 13499}, "strides = [3]"}})
    for (const char* layout : {"", "{nhwc}"})
      for (bool follows : {false, true}) {
        CAPTURE(c.attrs);
        CAPTURE(layout);
        CAPTURE(follows);
        const std::string head = cat("%x: f32", c.x, layout, ", %w: f32", c.w, ", %b: f32", Dims{c.y[1]}),
                          y = cat("f32", c.y, layout),
                          conv = cat("conv_transpose(%x, %w, %b) {", c.attrs, "} : ", y);
        const std::string text =
            follows ? cat("graph \"g\"(", head, ") { %out = fused(%x, %w, %b) {body = graph \"b\"(", head,
                          ") { %0 = ", conv, " %1 = tanh(%0) : ", y, " return %1 }, kind = \"conv\"} : ", y,
                          " return %out }")
                    : cat("graph \"g\"(", head, ") { %out = ", conv, " return %out }");
        const std::vector<Tensor> in = {random(DType::f32, c.x, 1), random(DType::f32, c.w, 2),
                                        random(DType::f32, {c.y[1]}, 3)};
        int64_t bytes = -1;
        Options o;
        o.implementation = "onednn.conv";
        o.constant = {false, true, true};
        o.scratch_bytes = &bytes;
        check_node(text, in, o, kSums);
        run_on_cpu(ir::parse_graph(text), in, o);
        CHECK(bytes >= 4 * element_count(c.y));  // the phases
      }
}

TEST_CASE("images that run one by one have scratch for as many as run at a time") {
  if (device::detect_cpu().isa < device::CpuIsa::avx2 || !cpu_registry().find("onednn.conv_tile")) return;
  auto scratch = [](int64_t images, int threads, bool constant_weights) {
    const Dims x = {images, 16, 64, 64}, w = {64, 16, 3, 3};
    const std::string head = cat("%x: f32", x, "{nhwc}, %w: f32", w),
                      y = cat("f32", Dims{images, 64, 62, 62}, "{nhwc}");
    const ir::Graph g =
        ir::parse_graph(cat("graph \"g\"(", head, ") { %out = fused(%x, %w) {body = graph \"b\"(", head,
                            ") { %0 = conv(%x, %w) : ", y, " %1 = silu(%0) : ", y,
                            " return %1 }, kind = \"conv\"} : ", y, " return %out }"));
    int64_t bytes = -1;
    Options o;
    o.implementation = "onednn.conv_tile";
    o.constant = {false, constant_weights};
    o.scratch_bytes = &bytes;
    set_threads(threads);
    run_on_cpu(g, {random(DType::f32, x, 1), random(DType::f32, w, 2)}, o);
    set_threads(0);
    return bytes;
  };
  REQUIRE(scratch(1, 2, true) > 0);  // the library's own for an image, which depends on the threads
  CHECK(scratch(3, 2, true) == 3 * scratch(1, 2, true));
  CHECK(scratch(3, 1, true) == scratch(1, 1, true));
  CHECK(scratch(3, 4, true) == scratch(1, 4, true));  // fewer images than threads: one after the other
  // Weights that change are re-ordered once a run, not for each image.
  const int64_t weights = int64_t{64} * 16 * 9 * 4;
  CHECK(scratch(3, 2, false) - scratch(1, 2, true) < 2 * weights);
}

TEST_CASE("a group in another layout than plain runs node by node where nothing takes it whole") {
  const std::string head = "%x: f32[2,16,6,6]{nhwc}, %w: f32[32,16,3,3]", y = "f32[2,32,6,6]{nhwc}";
  const std::string text =
      cat("graph \"g\"(", head, ") { %out = fused(%x, %w) {body = graph \"b\"(", head,
          ") { %0 = conv(%x, %w) {low = dims[1,1], high = dims[1,1]} : ", y, " %1 = sin(%0) : ", y,
          " return %1 }, kind = \"conv\"} : ", y, " return %out }");
  Options o;
  o.implementation = "cpu.body";
  o.constant = {false, true};
  check_node(text, {random(DType::f32, {2, 16, 6, 6}, 1), random(DType::f32, {32, 16, 3, 3}, 2)}, o, kSums);
  CHECK(refusal(ir::parse_graph(text), "cpu.tile").find("is not for tile programs") != std::string::npos);
}

TEST_CASE("a NaN goes through what follows a contraction") {
  struct Case {
    const char *step, *constants;
    bool lost_by_library;  // docs/numerics.md
  };
  const char* zero = "%c = constant() {value = tensor<f32[]>{0}} : f32[] ";
  const char* two =
      "%c = constant() {value = tensor<f32[]>{0}} : f32[] %d = constant() {value = tensor<f32[]>{6}} : "
      "f32[] ";
  const Case cases[] = {
      {"relu(%0)", "", true},        {"clamp(%0, %c, %d)", two, true}, {"max(%0, %c)", zero, false},
      {"min(%0, %c)", zero, false},  {"exp(%0)", "", false},           {"hard_sigmoid(%0)", "", false},
      {"hard_swish(%0)", "", false}, {"leaky_relu(%0)", "", false},    {"elu(%0)", "", false},
      {"silu(%0)", "", false},       {"gelu(%0)", "", false},          {"sigmoid(%0)", "", false},
      {"tanh(%0)", "", false},       {"mish(%0)", "", false}};
  struct Product {
    const char *kind, *op;
    Dims x, w, y;
  };
  const Product products[] = {{"matmul", "matmul(%x, %w)", {8, 16}, {16, 24}, {8, 24}},
                              {"conv", "conv(%x, %w)", {1, 16, 8, 8}, {16, 16, 3, 3}, {1, 16, 6, 6}}};
  for (const Product& p : products)
    for (const Case& c : cases)
      for (const backend::Implementation* item : cpu_registry().candidates("fused")) {
        const std::string head = cat("%x: f32", p.x, ", %w: f32", p.w), y = cat("f32", p.y);
        const std::string text =
            cat("graph \"g\"(", head, ") { %o = fused(%x, %w) {body = graph \"b\"(", head, ") { ",
                c.constants, "%0 = ", p.op, " : ", y, " %1 = ", c.step, " : ", y, " return %1 }, kind = \"",
                p.kind, "\"} : ", y, " return %o }");
        const ir::Graph g = ir::parse_graph(text);
        Options options;
        options.implementation = item->name;
        options.constant = {false, true};
        if (!refusal(g, options.implementation).empty()) continue;
        Tensor x = random(DType::f32, p.x, 1);
        x.set_double(x.count() / 2, NAN);
        const std::vector<Tensor> inputs = {x, random(DType::f32, p.w, 2)};
        const std::vector<double>
            got = to_doubles(run_on_cpu(g, inputs, options)[0]),
            want = to_doubles(
                interp::run(g, {ir::HostValue(inputs[0]), ir::HostValue(inputs[1])}).outputs[0].tensor);
        CAPTURE(options.implementation);
        CAPTURE(text);
        CHECK(std::any_of(want.begin(), want.end(), [](double v) { return std::isnan(v); }));
        // A NaN that the library loses becomes the lower bound, which is 0 in both cases, and nothing else.
        const bool may_lose = c.lost_by_library && options.implementation.rfind("onednn", 0) == 0;
        for (size_t i = 0; i < want.size(); ++i) {
          const bool kept = std::isnan(got[i]) || (may_lose && got[i] == 0);
          if (std::isnan(want[i]) ? !kept : std::isnan(got[i]))
            FAIL_CHECK("value ", i, " is ", got[i], ", the interpreter says ", want[i]);
        }
      }
}
