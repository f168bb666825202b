// SPDX-License-Identifier: Apache-2.0
// Products and convolutions of 8-bit integers: their sums are exact.
#include <doctest/doctest.h>

#include "backend/cpu/harness.h"
#include "base/cat.h"
#include "base/thread_pool.h"
#include "ir/text.h"

using namespace pelton;
using namespace pelton::test;

namespace {

bool has_avx2() {
  return device::detect_cpu().isa >= device::CpuIsa::avx2;
}
// All values of the type occur, the ends first.
std::string constant(const char* name, const char* type, const Dims& dims) {
  std::string values;
  const int64_t low = type[0] == 'u' ? 0 : -128;
  for (int64_t i = 0; i < element_count(dims); ++i)
    append(values, cat(i ? ", " : "", low + (i < 40 ? (i % 2) * 255 : (i * 7919 + i / 9 * 31) % 256)));
  return cat("%", name, " = constant() {value = tensor<", type, dims, ">{", values, "}} : ", type, dims, " ");
}
Tensor bytes(const char* type, const Dims& dims) {
  return type[0] == 'u' ? random(DType::u8, dims, 1, 0, 256) : random(DType::i8, dims, 1, -128, 128);
}

struct Window {
  Dims x, w, strides, dilations, pads;
  int64_t groups = 1;
  Dims y() const {
    Dims out = {x[0], w[0]};
    for (size_t i = 0; i < strides.size(); ++i)
      out.push_back((x[2 + i] + 2 * pads[i] - dilations[i] * (w[2 + i] - 1) - 1) / strides[i] + 1);
    return out;
  }
  std::string attributes() const {
    return cat("{strides = ", strides, ", dilations = ", dilations, ", low = dims", pads, ", high = dims",
               pads, ", groups = ", groups, "}");
  }
};

}  // namespace

TEST_CASE("8-bit matrix products of any size and sign, with zero points of all kinds") {
  if (!has_avx2()) return;
  for (int threads : {1, 3}) {
    set_threads(threads);
    for (const Dims& d : {Dims{1, 1, 1}, Dims{5, 7, 17}, Dims{6, 64, 16}, Dims{1, 300, 700}, Dims{64, 33, 1},
                          Dims{200, 130, 50}, Dims{0, 4, 4}, Dims{3, 0, 5}})
      for (const char* a : {"u8", "i8"})
        for (const char* b : {"u8", "i8"})
          for (bool flipped : {false, true}) {
            const int64_t m = d[0], k = d[1], n = d[2];
            CAPTURE(m);
            CAPTURE(k);
            const std::string tail =
                cat(flipped ? " {transpose_b = true}" : "", " : i32", Dims{m, n}, " return %y }");
            const std::string w = constant("w", b, flipped ? Dims{n, k} : Dims{k, n});
            const Options options{.implementation = "cpu.int8"};
            const std::string x = cat("graph \"g\"(%x: ", a, Dims{m, k});
            check_node(cat(x, ") { ", w, "%y = matmul(%x, %w)", tail), {bytes(a, {m, k})}, options);
            check_node(
                cat(x, ", %z: ", a, "[]) { ", w, constant("v", b, {n}), "%y = matmul(%x, %w, %z, %v)", tail),
                {bytes(a, {m, k}), bytes(a, {})}, options);
            check_node(cat(x, ") { ", constant("z", a, {}), w, constant("v", b, {}),
                           "%y = matmul(%x, %w, %z, %v)", tail),
                       {bytes(a, {m, k})}, options);
          }
  }
  set_threads(0);
}

TEST_CASE("8-bit products of matrices that both come with the run, batches that broadcast") {
  if (!has_avx2()) return;
  struct Case {
    Dims a, b, y;
  };
  for (int threads : {1, 3}) {
    set_threads(threads);
    for (const Case& c : {Case{{7, 9}, {9, 20}, {7, 20}}, Case{{3, 70, 33}, {3, 33, 50}, {3, 70, 50}},
                          Case{{2, 1, 5, 8}, {3, 8, 16}, {2, 3, 5, 16}}, Case{{4, 6}, {2, 6, 3}, {2, 4, 3}},
                          Case{{5, 1, 300}, {5, 300, 1}, {5, 1, 1}}, Case{{2, 0, 4}, {4, 4}, {2, 0, 4}}})
      for (const char* a : {"u8", "i8"})
        for (const char* b : {"u8", "i8"})
          for (bool flipped : {false, true}) {
            Dims right = c.b;
            if (flipped) std::swap(right[right.size() - 1], right[right.size() - 2]);
            CAPTURE(c.a);
            check_node(cat("graph \"g\"(%x: ", a, c.a, ", %w: ", b, right, ", %z: ", a, "[], %v: ", b,
                           "[]) { %y = matmul(%x, %w, %z, %v)", flipped ? " {transpose_b = true}" : "",
                           " : i32", c.y, " return %y }"),
                       {bytes(a, c.a), bytes(b, right), bytes(a, {}), bytes(b, {})},
                       {.implementation = "cpu.int8"});
          }
  }
  set_threads(0);
}

TEST_CASE("8-bit convolutions of 1 to 3 dims: groups, windows, pads, channels of any number") {
  if (!has_avx2()) return;
  for (int threads : {1, 3}) {
    set_threads(threads);
    for (const Window& c : {Window{{1, 3, 9, 10}, {17, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
                            Window{{2, 16, 7, 7}, {32, 16, 1, 1}, {1, 1}, {1, 1}, {0, 0}},
                            Window{{2, 5, 11, 8}, {6, 5, 3, 2}, {2, 1}, {1, 2}, {2, 0}},
                            Window{{3, 12, 8, 9}, {20, 3, 3, 3}, {1, 2}, {2, 1}, {1, 1}, 4},
                            Window{{2, 37, 8, 9}, {37, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 37},
                            Window{{1, 20, 9, 9}, {20, 1, 5, 5}, {2, 2}, {1, 1}, {2, 2}, 20},
                            Window{{1, 6, 5, 5}, {12, 1, 3, 3}, {1, 1}, {1, 1}, {0, 0}, 6},
                            Window{{2, 7, 30}, {9, 7, 5}, {2}, {1}, {2}},
                            Window{{1, 4, 5, 6, 7}, {10, 4, 3, 3, 3}, {1, 1, 2}, {1, 1, 1}, {1, 0, 1}}})
      for (const char* type : {"u8", "i8"}) {
        CAPTURE(c.x);
        CAPTURE(c.w);
        const Options options{.implementation = "cpu.int8"};
        const std::string head = cat("graph \"g\"(%x: ", type, c.x, "{nhwc}"), w = constant("w", "i8", c.w),
                          end = cat(c.attributes(), " : i32", c.y(), "{nhwc} return %y }");
        check_node(cat(head, ") { ", w, "%y = conv(%x, %w) ", end), {bytes(type, c.x)}, options);
        check_node(cat(
                       head, ", %z: ", type, "[]) { ", w, constant("v", "i8", {c.w[0]}),
                       "%b = constant() {value = tensor<i32[", c.w[0], "]>{",
                       [&] {
                         std::string all;
                         for (int64_t i = 0; i < c.w[0]; ++i)
                           append(all, cat(i ? ", " : "", i * 1000 - 70000));
                         return all;
                       }(),
                       "}} : i32[", c.w[0], "] %y = conv(%x, %w, %b, %z, %v) ", end),
                   {bytes(type, c.x), bytes(type, {})}, options);
      }
  }
  set_threads(0);
}

TEST_CASE("what follows 8-bit sums runs with them: scales, activations, residuals, back to 8 bits") {
  if (!has_avx2()) return;
  struct Chain {
    const char *steps, *result;
  };
  for (int64_t outputs : {16, 35, 600})
    for (const Chain& chain :
         {Chain{"return %1", "f32"}, Chain{"%2 = relu(%1) : @ return %2", "f32"},
          Chain{"%2 = add(%1, %or) : @ %3 = silu(%2) : @ return %3", "f32"},
          Chain{"%2 = add(%1, %or) : @ %3 = quantize(%2, %os, %oz) {to = u8} : # return %3", "u8"},
          Chain{"%2 = quantize(%1, %os, %oy) {to = i8} : # return %2", "i8"}}) {
      const Dims x = {2, 8, 6, 7}, y = {2, outputs, 6, 7}, c = {outputs};
      std::string steps = chain.steps;
      for (const auto& [mark, type] :
           {std::pair{'@', cat("f32", y, "{nhwc}")}, {'#', cat(chain.result, y, "{nhwc}")}})
        for (size_t at; (at = steps.find(mark)) != std::string::npos;) steps.replace(at, 1, type);
      std::string scales;
      for (int64_t i = 0; i < outputs; ++i)
        append(scales, cat(i ? ", " : "", 0.00005 + 0.000001 * static_cast<double>(i % 50)));
      const std::string operands = cat("%ow: i8", Dims{outputs, 8, 1, 1}, ", %oc: f32", c, ", %or: f32", y,
                                       "{nhwc}, %os: f32[], %oz: u8[], %oy: i8[]");
      check_node(cat("graph \"g\"(%x: u8", x, "{nhwc}, %r: f32", y, "{nhwc}) { ",
                     constant("w", "i8", {outputs, 8, 1, 1}), "%c = constant() {value = tensor<f32", c, ">{",
                     scales, "}} : f32", c,
                     " %s = constant() {value = tensor<f32[]>{0.0144}} : f32[] %z = constant() {value = "
                     "tensor<u8[]>{131}} : u8[] %v = constant() {value = tensor<i8[]>{-7}} : i8[] "
                     "%o = fused(%x, %w, %c, %r, %s, %z, %v) {body = graph \"b\"(%0: u8",
                     x, "{nhwc}, ", operands, ") { %i = conv(%0, %ow) : i32", y,
                     "{nhwc} %1 = dequantize(%i, %oc) {axis = 1, to = f32} : f32", y, "{nhwc} ", steps,
                     " }, kind = \"conv\"} : ", chain.result, y, "{nhwc} return %o }"),
                 {bytes("u8", x), random(DType::f32, y, 5, -1, 1)}, {.implementation = "cpu.int8"},
                 Measure::absolute);
    }
}

TEST_CASE("biases of integers and scales that a run computes are part of the 8-bit product") {
  if (!has_avx2()) return;
  for (const Dims& d : {Dims{3, 20, 40}, Dims{70, 64, 700}})
    for (bool channels : {false, true}) {
      const Dims a = {d[0], d[1]}, w = {d[1], d[2]}, y = {d[0], d[2]}, c = channels ? Dims{d[2]} : Dims{};
      std::string bias;
      for (int64_t i = 0; i < d[2]; ++i) append(bias, cat(i ? ", " : "", i * 997 - 90000));
      const std::string head = cat("%x: u8", a, ", %w: i8", w, ", %b: i32[", d[2], "], %z: u8[], %s: f32", c,
                                   ", %v: u8[]"),
                        outer = cat("graph \"g\"(%x: u8", a, ", %z: u8[], %s: f32", c, ") { ",
                                    constant("w", "i8", w), "%b = constant() {value = tensor<i32[", d[2],
                                    "]>{", bias, "}} : i32[", d[2],
                                    "] %v = constant() {value = tensor<u8[]>{131}} : u8[] ");
      const std::vector<Tensor> inputs = {bytes("u8", a), bytes("u8", {}),
                                          random(DType::f32, c, 3, 0.0005, 0.001)};
      const std::string sums = cat("%0 = matmul(%x, %w, %z) : i32", y, " %1 = add(%0, %b) : i32", y);
      for (const auto& [steps, type] :
           {std::pair{cat("%2 = requantize(%1, %s, %v) {axis = 1, to = u8} : u8", y), cat("u8", y)},
            {cat("%3 = cast(%1) {to = f32} : f32", y, " %2 = mul(%3, %s) : f32", y), cat("f32", y)}}) {
        const std::string text =
            cat(outer, "%o = fused(%x, %w, %b, %z, %s, %v) {body = graph \"b\"(", head, ") { ", sums, " ",
                steps, " return %2 }, kind = \"matmul\"} : ", type, " return %o }");
        if (!channels && type[0] == 'u') continue;  // one scale that a run computes comes as a factor
        check_node(text, inputs, {.implementation = "cpu.int8", .exact = type[0] == 'u'}, Measure::absolute);
      }
    }
}

TEST_CASE("what cpu.int8 does not take says why") {
  if (!has_avx2()) return;
  const auto why = [](const std::string& text) { return refusal(ir::parse_graph(text), "cpu.int8"); };
  CHECK(why("graph \"g\"(%x: u8[1,2,3,3]{nhwc}, %w: i8[4,2,1,1]) { %y = conv(%x, %w) : i32[1,4,3,3]{nhwc} "
            "return %y }") == "needs constant weights");
  CHECK(why(cat("graph \"g\"(%x: u8[1,2,3,3]) { ", constant("w", "i8", {4, 2, 1, 1}),
                "%y = conv(%x, %w) : i32[1,4,3,3] return %y }")) == "needs channels-last images");
}
