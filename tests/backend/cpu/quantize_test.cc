// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "backend/cpu/harness.h"
#include "base/cat.h"

using namespace pelton;
using namespace pelton::test;

TEST_CASE("quantize and dequantize, one scale or one a channel") {
  for (const char* type : {"u8", "i8", "i16"})
    for (bool channels : {false, true}) {
      const DType t = *dtype_from_name(type);
      const Dims d = {2, 5, 70}, s = channels ? Dims{5} : Dims{};
      const Tensor scale = random(DType::f32, s, 2, 0.01, 0.1), zero = random(t, s, 3, 0, 20);
      check_node(cat("graph \"g\"(%x: f32", d, ", %s: f32", s, ", %z: ", type, s,
                     ") { %y = quantize(%x, %s, %z) {to = ", type, "} : ", type, d, " return %y }"),
                 {random(DType::f32, d, 1, -9, 9), scale, zero});
      check_node(cat("graph \"g\"(%x: ", type, d, ", %s: f32", s, ", %z: ", type, s,
                     ") { %y = dequantize(%x, %s, %z) {to = f32} : f32", d, " return %y }"),
                 {random(t, d, 1, 0, 120), scale, zero});
    }
}

TEST_CASE("quantize takes NaN for its zero point and infinities for the ends of the range") {
  Tensor x = random(DType::f32, {3, 50}, 1, -9, 9);
  const double odd[] = {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e30, -1e30, -0.0, 0.5, 1.5};
  for (int64_t i = 0; i < 24; ++i) x.set_double(i * 5, odd[i % 8]);
  for (const char* type : {"u8", "i8", "i16"})
    for (const char* body : {"quantize(%x, %s, %z) {to = ", "quantize(%x, %s) {to = "}) {
      const DType t = *dtype_from_name(type);
      check_node(cat("graph \"g\"(%x: f32[3,50], %s: f32[], %z: ", type, "[]) { %y = ", body, type,
                     "} : ", type, "[3,50] return %y }"),
                 {x, random(DType::f32, {}, 2, 0.01, 0.1), random(t, {}, 3, 3, 20)});
    }
}

TEST_CASE("dynamic_quantize finds the range of any number of values") {
  for (const Dims& d : {Dims{}, Dims{0}, Dims{1}, Dims{3, 77}, Dims{40, 1000}})
    for (const char* type : {"f32", "f16", "bf16"})
      for (const auto& [low, high] : {std::pair{-3.0, 9.0}, {1.0, 2.0}, {-5.0, -1.0}, {0.0, 0.0}}) {
        Tensor x = random(*dtype_from_name(type), d, 1, low, high);
        if (x.count() > 100) x.set_double(50, std::nan(""));
        check_node(cat("graph \"g\"(%x: ", type, d, ") { %y, %s, %z = dynamic_quantize(%x) : u8", d,
                       ", f32[], u8[] return %y, %s, %z }"),
                   {x}, {.implementation = "cpu.dynamic_quantize", .exact = true});
      }
}

TEST_CASE("one scale serves values of any rank, whatever axis the node names") {
  for (const Dims& d : {Dims{}, Dims{7}, Dims{3, 5}})
    for (const Dims& s : {Dims{}, Dims{1}}) {
      const Tensor scale = random(DType::f32, s, 2, 0.01, 0.1), zero = random(DType::u8, s, 3, 0, 20);
      check_node(cat("graph \"g\"(%x: f32", d, ", %s: f32", s, ", %z: u8", s,
                     ") { %y = quantize(%x, %s, %z) {axis = 1, to = u8} : u8", d, " return %y }"),
                 {random(DType::f32, d, 1, -9, 9), scale, zero});
      check_node(cat("graph \"g\"(%x: u8", d, ", %s: f32", s, ", %z: u8", s,
                     ") { %y = dequantize(%x, %s, %z) {axis = 1, to = f32} : f32", d, " return %y }"),
                 {random(DType::u8, d, 1, 0, 120), scale, zero});
    }
}

TEST_CASE("batch_norm in every layout") {
  for (const char* layout : {"", "{nhwc}", "{c16}"}) {
    const Dims d = {2, 16, 5, 7}, c = {16};
    const std::string t = cat("f32", d, layout), v = cat("f32", c);
    check_node(cat("graph \"g\"(%x: ", t, ", %s: ", v, ", %b: ", v, ", %m: ", v, ", %v: ", v,
                   ") { %y = batch_norm(%x, %s, %b, %m, %v) {eps = 1e-5} : ", t, " return %y }"),
               {random(DType::f32, d, 1), random(DType::f32, c, 2), random(DType::f32, c, 3),
                random(DType::f32, c, 4), random(DType::f32, c, 5, 0.5, 2)},
               {}, Measure::absolute);
  }
}

TEST_CASE("an integer product comes back to 8 bits in the same kernel") {
  const std::string head = "%a: u8[9,64], %w: i8[64,48], %s: f32[48], %z: u8[]";
  for (const char* step : {"requantize(%0, %s, %z) {axis = 1, to = u8} : u8[9,48]",
                           "dequantize(%0, %s) {axis = 1, to = f32} : f32[9,48]"}) {
    const std::string type = std::string(step).find("u8[9") != std::string::npos ? "u8[9,48]" : "f32[9,48]";
    const std::string outer = head.substr(0, head.rfind(", %z"));
    check_node(cat("graph \"g\"(", outer,
                   ") { %z = constant() {value = tensor<u8[]>{128}} : u8[] %o = fused(%a, %w, %s, %z) {body "
                   "= graph \"b\"(",
                   head, ") { %0 = matmul(%a, %w) : i32[9,48] %1 = ", step,
                   " return %1 }, kind = \"matmul\"} : ", type, " return %o }"),
               {random(DType::u8, {9, 64}, 1, 0, 256), random(DType::i8, {64, 48}, 2, -128, 128),
                random(DType::f32, {48}, 3, 0.0005, 0.001)},
               {"", {false, true, true}, true}, Measure::absolute);
  }
}

TEST_CASE("integer sums rounded inside the chain: a residual is added between two quantisations") {
  if (device::detect_cpu().isa < device::CpuIsa::avx512_vnni || !cpu_registry().find("onednn.conv")) return;
  for (const char* mid : {"u8", "i8"}) {
    const std::string y = "[2,32,6,6]{nhwc}", zero = mid[0] == 'u' ? "136" : "-7";
    const std::string head = cat("%x: u8[2,16,6,6]{nhwc}, %w: i8[32,16,1,1], %s: f32[32], %r: f32", y);
    check_node(
        cat("graph \"g\"(", head, ") { %o = fused(%x, %w, %s, %r) {body = graph \"b\"(", head,
            ") { %0 = conv(%x, %w) : i32", y, " %1 = dequantize(%0, %s) {axis = 1} : f32", y,
            " %a = constant() {value = tensor<f32[]>{0.0144}} : f32[] %z = constant() {value = tensor<", mid,
            "[]>{", zero, "}} : ", mid, "[] %2 = quantize(%1, %a, %z) {to = ", mid, "} : ", mid, y,
            " %3 = dequantize(%2, %a, %z) : f32", y, " %4 = add(%3, %r) : f32", y,
            " %b = constant() {value = tensor<f32[]>{0.0101}} : f32[] %5 = quantize(%4, %b) {to = u8} : u8",
            y, " return %5 }, kind = \"conv\"} : u8", y, " return %o }"),
        {random(DType::u8, {2, 16, 6, 6}, 1, 0, 256), random(DType::i8, {32, 16, 1, 1}, 2, -128, 128),
         random(DType::f32, {32}, 3, 0.00005, 0.0001), random(DType::f32, {2, 32, 6, 6}, 4, -1, 2)},
        {"onednn.conv", {false, true, true}, true}, Measure::absolute);
  }
}
