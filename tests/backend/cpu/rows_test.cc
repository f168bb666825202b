// SPDX-License-Identifier: Apache-2.0
// Reductions, softmax, norms, and fused groups of them.
#include <doctest/doctest.h>

#include <cmath>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::test;

namespace {
Options only(const char* implementation) {
  Options o;
  o.implementation = implementation;
  return o;
}
}  // namespace

TEST_CASE("reductions over any axes") {
  struct Case {
    Dims x;
    const char* axes;
    Dims kept, dropped;
  };
  const Case cases[] = {{{3, 70}, "[1]", {3, 1}, {3}},
                        {{3, 70}, "[0]", {1, 70}, {70}},
                        {{2, 3, 4, 5}, "[1,3]", {2, 1, 4, 1}, {2, 4}},
                        {{2, 3, 33}, "[-1,-2]", {2, 1, 1}, {2}},
                        {{4000}, "[0]", {1}},
                        {{2, 0}, "[1]", {2, 1}, {2}},
                        {{2, 8, 20, 21}, "[2,3]", {2, 8, 1, 1}, {2, 8}}};
  for (const Case& c : cases)
    for (const char* op : {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"})
      for (const char* type : {"f32", "bf16", "f16"})
        for (bool keep : {true, false}) {
          const DType t = *dtype_from_name(type);
          if (std::string(op) != "reduce_sum" && element_count(c.x) == 0) continue;
          check_node(
              cat("graph \"g\"(%x: ", type, c.x, ") { %y = ", op, "(%x) {axes = ", c.axes,
                  keep ? ", keep_dims = true" : "", "} : ", type, keep ? c.kept : c.dropped, " return %y }"),
              {random(t, c.x, 1, 0.5, 1.1)}, {}, Measure::absolute);
        }
}

TEST_CASE("means over the pixels of a channels-last image") {
  for (const char* type : {"f32", "bf16"})
    for (int64_t channels : {1, 3, 600})
      for (bool keep : {true, false}) {
        const DType t = *dtype_from_name(type);
        const Dims d = {2, channels, 13, 17};
        const std::string y = keep ? cat(Dims{2, channels, 1, 1}, "{nhwc}") : cat(Dims{2, channels});
        check_node(cat("graph \"g\"(%x: ", type, d, "{nhwc}) { %y = reduce_mean(%x) {axes = [2,3]",
                       keep ? ", keep_dims = true" : "", "} : ", type, y, " return %y }"),
                   {random(t, d, 1)}, {}, Measure::absolute);
      }
}

TEST_CASE("softmax and norms along their axes") {
  for (const char* type : {"f32", "bf16"})
    for (int64_t n : {1, 7, 64, 768, 30000})
      for (const char* op : {"softmax", "log_softmax"})
        for (int axis : {-1, 1}) {
          const DType t = *dtype_from_name(type);
          const Dims d = axis == 1 ? Dims{2, std::min<int64_t>(n, 768), 9} : Dims{3, n};
          check_node(cat("graph \"g\"(%x: ", type, d, ") { %y = ", op, "(%x) {axis = ", axis, "} : ", type, d,
                         " return %y }"),
                     {random(t, d, 1, -9, 9)}, {}, Measure::absolute);
        }
  for (const char* type : {"f32", "bf16"})
    for (int64_t n : {1, 7, 64, 768}) {
      const DType t = *dtype_from_name(type);
      const Dims d = {4, 3, n}, v = {n};
      const std::string head = cat("%x: ", type, d, ", %s: ", type, v);
      check_node(cat("graph \"g\"(", head, ", %b: ", type, v,
                     ") { %y = layer_norm(%x, %s, %b) {axis = 2, eps = 1e-5} : ", type, d, " return %y }"),
                 {random(t, d, 1), random(t, v, 2), random(t, v, 3)}, {}, Measure::absolute);
      check_node(cat("graph \"g\"(", head, ") { %y = rms_norm(%x, %s) {axis = -1, eps = 1e-6} : ", type, d,
                     " return %y }"),
                 {random(t, d, 1), random(t, v, 2)}, {}, Measure::absolute);
    }
}

TEST_CASE("norms of rows of any length") {
  for (int64_t n : {1, 2, 7, 8, 9, 16, 23, 24, 32, 33, 40, 48, 63, 64, 65, 96, 127, 160, 257, 1000, 5003})
    for (int64_t rows : {0, 1, 3, 70})
      for (bool scaled : {false, true})
        for (bool shifted : {false, true}) {
          if (shifted && !scaled) continue;
          const Dims d = {rows, n}, v = {n};
          const std::string x = cat("f32", d),
                            head = cat("%x: ", x, scaled ? cat(", %s: f32", v) : std::string());
          std::vector<Tensor> inputs = {random(DType::f32, d, 1, -1, 3)};
          if (scaled) inputs.push_back(random(DType::f32, v, 2));
          if (!shifted)
            check_node(cat("graph \"g\"(", head, ") { %y = rms_norm(%x", scaled ? ", %s" : "",
                           ") {axis = -1, eps = 1e-6} : ", x, " return %y }"),
                       inputs, only("cpu.row_norm"), Measure::absolute);
          if (shifted) inputs.push_back(random(DType::f32, v, 3));
          check_node(cat("graph \"g\"(", head, shifted ? cat(", %b: f32", v) : std::string(),
                         ") { %y = layer_norm(%x", scaled ? ", %s" : "", shifted ? ", %b" : "",
                         ") {axis = 1, eps = 1e-5} : ", x, " return %y }"),
                     inputs, only("cpu.row_norm"), Measure::absolute);
        }
  // Several axes make a row; a bias alone; scale and bias with leading ones.
  const std::string x = "f32[2,5,3,7]";
  check_node(cat("graph \"g\"(%x: ", x,
                 ", %s: f32[3,7], %b: f32[1,1,3,7]) { %y = layer_norm(%x, %s, %b) {axis = 2, "
                 "eps = 1e-5} : ",
                 x, " return %y }"),
             {random(DType::f32, {2, 5, 3, 7}, 1), random(DType::f32, {3, 7}, 2),
              random(DType::f32, {1, 1, 3, 7}, 3)},
             only("cpu.row_norm"), Measure::absolute);
  check_node(cat("graph \"g\"(%x: ", x,
                 ", %b: f32[7]) { %y = layer_norm(%x, _, %b) {axis = -1, eps = 1e-5} : ", x, " return %y }"),
             {random(DType::f32, {2, 5, 3, 7}, 1), random(DType::f32, {7}, 2)}, only("cpu.row_norm"),
             Measure::absolute);
}

TEST_CASE("a NaN or an infinity stays in its row of a norm") {
  Tensor x = random(DType::f32, {4, 19}, 1);
  static_cast<float*>(x.mutable_data())[18] = NAN;
  static_cast<float*>(x.mutable_data())[19 * 2 + 3] = INFINITY;
  for (const char* op : {"layer_norm", "rms_norm"})
    check_node(
        cat("graph \"g\"(%x: f32[4,19]) { %y = ", op, "(%x) {axis = -1, eps = 1e-5} : f32[4,19] return %y }"),
        {x}, only("cpu.row_norm"), Measure::absolute);
}

TEST_CASE("norms that the row loop leaves to tile programs say why") {
  const auto why = [](const std::string& args, const std::string& node) {
    return refusal(ir::parse_graph(cat("graph \"g\"(", args, ") { ", node, " }")), "cpu.row_norm");
  };
  const std::string attrs = " {axis = -1, eps = 1e-5} : ";
  CHECK(why("%x: f32[4,8], %s: f32[4,8]", "%y = layer_norm(%x, %s)" + attrs + "f32[4,8] return %y")
            .find("shape of a row") != std::string::npos);
  CHECK(why("%x: bf16[4,8]", "%y = layer_norm(%x)" + attrs + "bf16[4,8] return %y").find("needs f32") !=
        std::string::npos);
  CHECK(why("%x: f32[4,8]",
            "%y, %m, %r = layer_norm(%x)" + attrs + "f32[4,8], f32[4,1], f32[4,1] return %y, %m, %r")
            .find("statistics") != std::string::npos);
}

TEST_CASE("groups of pointwise and reduction nodes run as one loop") {
  const std::string x = "f32[5,3,200]", r = "f32[5,3,1]";
  const std::string head = cat("%x: ", x, ", %g: f32[200], %m: bool[3,1]");
  const std::string body =
      cat("%0 = reduce_mean(%x) {axes = [2], keep_dims = true} : ", r, " %1 = sub(%x, %0) : ", x,
          " %2 = square(%1) : ", x, " %3 = reduce_mean(%2) {axes = [2]} : f32[5,3]",
          " %4 = sqrt(%3) : f32[5,3] %5 = reshape(%4) {dims = dims[5,3,1]} : ", r, " %6 = div(%1, %5) : ", x,
          " %7 = mul(%6, %g) : ", x, " %8 = select(%m, %7, %x) : ", x);
  check_node(cat("graph \"g\"(", head, ") { %o, %s = fused(%x, %g, %m) {body = graph \"b\"(", head, ") { ",
                 body, " return %8, %4 }, kind = \"reduce\"} : ", x, ", f32[5,3] return %o, %s }"),
             {random(DType::f32, {5, 3, 200}, 1), random(DType::f32, {200}, 2),
              random(DType::boolean, {3, 1}, 3, 0, 2)},
             {"cpu.tile", {}}, Measure::absolute);
}

TEST_CASE("an operand computed from a longer loop is refused by name") {
  const ir::Graph g = ir::parse_graph(
      "graph \"g\"(%x: f32[4,8]) { %o = fused(%x) {body = graph \"b\"(%x: f32[4,8]) { %0 = reduce_sum(%x) "
      "{axes = [0], "
      "keep_dims = true} : f32[1,8] %1 = reduce_sum(%0) {axes = [1]} : f32[1] return %1 }, kind = "
      "\"reduce\"} : f32[1] "
      "return %o }");
  CHECK(refusal(g, "cpu.tile").find("reduce_sum") != std::string::npos);
  check_node(
      "graph \"g\"(%x: f32[4,8]) { %o = fused(%x) {body = graph \"b\"(%x: f32[4,8]) { %0 = reduce_sum(%x) "
      "{axes = "
      "[0], keep_dims = true} : f32[1,8] %1 = reduce_sum(%0) {axes = [1]} : f32[1] return %1 }, kind = "
      "\"reduce\"} "
      ": f32[1] return %o }",
      {random(DType::f32, {4, 8}, 1)}, {"cpu.body", {}}, Measure::absolute);
}

TEST_CASE("a group that reduces outer axes runs node by node, over whole runs") {
  // The gates of two branches, as split attention has them.
  const std::string x = "f32[2,2,3,5,7]", head = cat("%x: ", x, ", %s: f32[2,2,3,1,1]");
  const std::string text = cat("graph \"g\"(", head, ") { %o = fused(%x, %s) {body = graph \"b\"(", head,
                               ") { %0 = mul(%x, %s) : ", x,
                               " %1 = reduce_sum(%0) {axes = [1]} : f32[2,3,5,7] return %1 }, kind = "
                               "\"reduce\"} : f32[2,3,5,7] return %o }");
  CHECK(refusal(ir::parse_graph(text), "cpu.tile") == "reduces outer axes: a loop over whole runs is faster");
  check_node(text, {random(DType::f32, {2, 2, 3, 5, 7}, 1), random(DType::f32, {2, 2, 3, 1, 1}, 2)},
             only("cpu.body"), Measure::absolute);
  // The channels of a channels-last image are innermost.
  const std::string y = "f32[2,5,3,7]{nhwc}";
  check_node(
      cat("graph \"g\"(%x: ", y, ") { %o = fused(%x) {body = graph \"b\"(%x: ", y,
          ") { %0 = square(%x) : ", y,
          " %1 = reduce_sum(%0) {axes = [1], keep_dims = true} : f32[2,1,3,7]{nhwc} %2 = div(%x, %1) : ", y,
          " return %2 }, kind = \"reduce\"} : ", y, " return %o }"),
      {random(DType::f32, {2, 5, 3, 7}, 1, 1, 2)}, only("cpu.tile"), Measure::absolute);
}

TEST_CASE("pairs of steps become one, whichever side the value stands on") {
  const std::string x = "f32[3,70]", head = cat("%a: ", x, ", %b: ", x, ", %c: f32[70], %d: f32[3,1]");
  for (const char* body : {"%0 = sub(%a, %b) : X %1 = mul(%c, %0) : X %2 = add(%d, %1) : X",
                           "%0 = mul(%a, %b) : X %1 = sub(%c, %0) : X %2 = square(%1) : X",
                           "%0 = mul(%a, %d) : X %1 = sub(%0, %c) : X %2 = relu(%1) : X",
                           "%0 = add(%a, %d) : X %1 = mul(%c, %0) : X %2 = mul(%1, %b) : X",
                           "%0 = mul(%a, %b) : X %1 = add(%0, %d) : X %2 = relu(%1) : X",
                           "%0 = add(%a, %b) : X %1 = add(%c, %0) : X %2 = relu(%1) : X",
                           "%0 = sub(%d, %a) : X %1 = square(%0) : X %2 = add(%1, %0) : X",
                           "%0 = hard_swish(%a) : X %1 = add(%c, %0) : X %2 = sub(%1, %b) : X",
                           "%0 = hard_swish(%a) : X %1 = add(%0, %d) : X %2 = div(%1, %b) : X",
                           "%0 = add(%a, %d) : X %1 = gelu(%0) : X %2 = sub(%1, %c) : X",
                           "%0 = add(%b, %a) : X %1 = gelu(%0) {tanh = true} : X %2 = neg(%1) : X",
                           "%0 = silu(%a) : X %1 = mul(%c, %0) : X %2 = div(%1, %b) : X",
                           "%0 = sigmoid(%b) : X %1 = mul(%0, %d) : X %2 = neg(%1) : X",
                           "%0 = tanh(%a) : X %1 = mul(%b, %0) : X %2 = neg(%1) : X"}) {
    std::string steps = body;
    for (size_t at; (at = steps.find('X')) != steps.npos;) steps.replace(at, 1, x);
    check_node(cat("graph \"g\"(", head, ") { %o = fused(%a, %b, %c, %d) {body = graph \"b\"(", head, ") { ",
                   steps, " return %2 }, kind = \"pointwise\"} : ", x, " return %o }"),
               {random(DType::f32, {3, 70}, 1), random(DType::f32, {3, 70}, 2), random(DType::f32, {70}, 3),
                random(DType::f32, {3, 1}, 4)},
               {"cpu.tile", {}}, Measure::absolute);
  }
}

TEST_CASE("rows of a few steps take their own single values along") {
  // Rows of two outer dims, more of them than go through at once; the last sizes do not fit the caches.
  for (const Dims& d : {Dims{3, 45, 200}, Dims{2, 1, 193}, Dims{2, 70, 10240}}) {
    const std::string x = cat("f32", d), by_row = cat("f32", Dims{d[0], d[1], 1}),
                      by_plane = cat("f32", Dims{d[0], 1, 1}), by_column = cat("f32", Dims{d[1], 1}),
                      run = cat("f32", Dims{d[2]});
    const std::string head = cat("%x: ", x, ", %r: ", by_row, ", %p: ", by_plane, ", %c: ", by_column,
                                 ", %v: ", run, ", %s: f32[1]");
    const std::string less = cat("bool", Dims{d[0], d[1], 1});
    for (const std::string& body :
         {cat("%0 = sigmoid(%r) : ", by_row, " %9 = mul(%x, %0) : ", x),
          cat("%0 = add(%c, %p) : ", by_row, " %1 = mul(%0, %r) : ", by_row, " %2 = sub(%x, %1) : ", x,
              " %3 = mul(%2, %s) : ", x, " %9 = add(%3, %v) : ", x),
          cat("%0 = lt(%r, %p) : ", less, " %1 = select(%0, %c, %r) : ", by_row, " %2 = max(%x, %1) : ", x,
              " %9 = exp(%2) : ", x),
          cat("%0 = square(%p) : ", by_plane, " %1 = tanh(%x) : ", x, " %2 = add(%1, %0) : ", x,
              " %3 = div(%2, %v) : ", x, " %9 = sub(%3, %c) : ", x)})
      check_node(cat("graph \"g\"(", head, ") { %o = fused(%x, %r, %p, %c, %v, %s) {body = graph \"b\"(",
                     head, ") { ", body, " return %9 }, kind = \"pointwise\"} : ", x, " return %o }"),
                 {random(DType::f32, d, 1), random(DType::f32, {d[0], d[1], 1}, 2),
                  random(DType::f32, {d[0], 1, 1}, 3), random(DType::f32, {d[1], 1}, 4),
                  random(DType::f32, {d[2]}, 5, 1, 2), random(DType::f32, {1}, 6)},
                 only("cpu.tile"), Measure::absolute);
  }
}

TEST_CASE("a sum and its reduction in one pass") {
  struct Case {
    const char* body;  // yields %1 of type Y
    bool row;
  };
  const Case cases[] = {{"%1 = reduce_sum(%0) {axes = [1], keep_dims = true} : Y", true},
                        {"%1 = reduce_max(%0) {axes = [1], keep_dims = true} : Y", true},
                        {"%1 = softmax(%0) {axis = 1} : Y", false},
                        {"%1 = layer_norm(%0, %c, %c) {axis = 1, eps = 1e-5} : Y", false}};
  for (int64_t n : {1, 7, 64, 70, 1000})
    for (const Case& c : cases)
      for (const Dims& other : {Dims{600, n}, Dims{n}, Dims{600, 1}}) {
        const Dims d = {600, n};
        const std::string x = cat("f32", d), y = c.row ? cat("f32", Dims{600, 1}) : x;
        const std::string head = cat("%a: ", x, ", %b: f32", other, ", %c: f32", Dims{n});
        std::string body = c.body;
        body.replace(body.find('Y'), 1, y);
        check_node(cat("graph \"g\"(", head, ") { %o, %s = fused(%a, %b, %c) {body = graph \"b\"(", head,
                       ") { %0 = add(%a, %b) : ", x, " ", body, " return %1, %0 }, kind = \"reduce\"} : ", y,
                       ", ", x, " return %o, %s }"),
                   {random(DType::f32, d, 1), random(DType::f32, other, 2), random(DType::f32, {n}, 3)},
                   {"cpu.tile", {}}, Measure::absolute);
      }
  Tensor a = random(DType::f32, {2, 20}, 1), b = random(DType::f32, {2, 20}, 2);
  static_cast<float*>(a.mutable_data())[17] = NAN;
  static_cast<float*>(b.mutable_data())[25] = NAN;
  const std::string head = "%a: f32[2,20], %b: f32[2,20]";
  check_node(
      cat("graph \"g\"(", head, ") { %o = fused(%a, %b) {body = graph \"b\"(", head,
          ") { %0 = add(%a, %b) : f32[2,20] %1 = reduce_max(%0) {axes = [1]} : f32[2] return %1 }, kind = "
          "\"reduce\"} : f32[2] return %o }"),
      {a, b}, {"cpu.tile", {}}, Measure::absolute);
}

TEST_CASE("means and extremes of many pixels, few and many channels") {
  for (const char* type : {"f32", "bf16"})
    for (int64_t channels : {1, 3, 32, 48, 513})
      for (const char* op : {"reduce_mean", "reduce_max"}) {
        const Dims d = {2, channels, 57, 43};
        const DType t = *dtype_from_name(type);
        check_node(cat("graph \"g\"(%x: ", type, d, "{nhwc}) { %y = ", op,
                       "(%x) {axes = [2,3], keep_dims = true} : ", type, Dims{2, channels, 1, 1},
                       "{nhwc} return %y }"),
                   {random(t, d, 3)}, only("cpu.column_reduce"), Measure::absolute);
      }
}

TEST_CASE("one value a channel on a channels-last tensor") {
  for (const char* op : {"mul", "add"})
    for (int64_t channels : {1, 5, 32, 700})
      for (int64_t batch : {1, 2}) {
        const Dims d = {2, channels, 13, 7};
        const std::string small = cat("f32", Dims{batch, channels, 1, 1});
        check_node(cat("graph \"g\"(%x: f32", d, "{nhwc}, %s: ", small, "{nhwc}) { %y = ", op,
                       "(%s, %x) : f32", d, "{nhwc} return %y }"),
                   {random(DType::f32, d, 3), random(DType::f32, {batch, channels, 1, 1}, 4)},
                   only("cpu.channelwise"));
      }
}
