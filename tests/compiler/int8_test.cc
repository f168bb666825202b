// SPDX-License-Identifier: Apache-2.0
// Calibration, and quantisation as far as the results allow.
#include "compiler/int8.h"

#include <doctest/doctest.h>

#include <cmath>

#include "base/philox.h"
#include "compiler/measured.h"
#include "interp/interpreter.h"
#include "ir/text.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::compiler;
using pelton::test::expect_error;

namespace {

const char* const kNet = R"(graph "net"(%x: f32[N,4]) {
  symbol N in [1, 64]
  %a = constant() {value = tensor<f32[4,6]>{0.5, -1, 0.25, 2, 1, -0.5, 1, 0.75, -2, 1, 0.5, 1, -1, 1, 2, 0.5, 0.25, 0.125, 3, -1, 1, 2, -2, 1}} : f32[4,6]
  %b = constant() {value = tensor<f32[6,3]>{1, 2, -1, 0.5, 1, 0.25, -1, 2, 1, 0.5, 0.5, 2, 1, -1, 0.25, 2, 1, 1}} : f32[6,3]
  %0 = matmul(%x, %a) : f32[N,6]
  %1 = relu(%0) : f32[N,6]
  %2 = matmul(%1, %b) : f32[N,3]
  return %2
})";

std::vector<std::vector<Tensor>> samples(int count) {
  std::vector<std::vector<Tensor>> out;
  for (int s = 0; s < count; ++s) {
    Tensor t = Tensor::zeros(DType::f32, {8, 4});
    RandomStream random{static_cast<uint64_t>(s), 0, 0};
    for (int64_t i = 0; i < t.count(); ++i) t.set_double(i, random.normal(static_cast<uint64_t>(i)));
    out.push_back({t});
  }
  return out;
}
runtime::Plan compile_net(double max_drop, Calibration method, int count = 8,
                          const char* precision = "int8") {
  compiler::Options o;
  compiler::Measured measured;
  o.precision = precision;
  measured.quantize.samples = samples(count);
  measured.quantize.method = method;
  measured.quantize.max_drop = max_drop;
  device::Target target;
  target.name = "cpu-scalar";
  const backend::Registry none;
  return compile(ir::parse_graph(kNet), target, o, none, measured);
}
int integer_products(const ir::Graph& g) {
  int count = 0;
  for (ir::NodeId id : g.order()) count += g[id].is("matmul") && g.type(g[id].inputs[0]).dtype != DType::f32;
  return count;
}

}  // namespace

TEST_CASE("products become integer ones and stay near the f32 result, by every way of calibration") {
  for (Calibration method : {Calibration::minmax, Calibration::percentile, Calibration::entropy}) {
    const runtime::Plan plan = compile_net(-1, method);
    CHECK(plan.precision == "int8");
    CHECK(integer_products(plan.graph) == 2);
    double error = 0, size = 0;
    for (const auto& s : samples(8)) {
      const std::vector<ir::HostValue> in{s[0]};
      const Tensor want = interp::run(ir::parse_graph(kNet), in).outputs[0].tensor;
      const Tensor got = interp::run(plan.graph, in).outputs[0].tensor;
      for (int64_t i = 0; i < want.count(); ++i) {
        error += std::pow(got.get_double(i) - want.get_double(i), 2);
        size += std::pow(want.get_double(i), 2);
      }
    }
    CHECK(std::sqrt(error / size) < 0.05);
    CHECK(error > 0);
  }
}

TEST_CASE("a bound on the drop keeps contractions in f32 or refuses, with figures") {
  CHECK(integer_products(compile_net(100, Calibration::minmax).graph) == 2);
  expect_error(ErrorCode::numeric, {"2 contractions", "still loses", "--max-drop"}, [] {
    compiler::Options o;
    compiler::Measured measured;
    o.precision = "int8";
    measured.quantize.samples = samples(2);
    measured.quantize.max_drop = 0;
    device::Target target;
    target.name = "cpu-scalar";
    const backend::Registry none;
    // A result of rank 1 has no classes: every rounding counts.
    std::string text = kNet;
    text.replace(text.find("  return %2"), 11, "  %3 = reduce_sum(%2) {axes = [1]} : f32[N]\n  return %3");
    compile(ir::parse_graph(text), target, o, none, measured);
  });
  expect_error(ErrorCode::usage, {"needs samples", "--calibrate"},
               [] { compile_net(-1, Calibration::minmax, 0); });
  expect_error(ErrorCode::usage, {"only be measured on samples"},
               [] { compile_net(1, Calibration::minmax, 0, "bf16"); });
  CHECK(compile_net(100, Calibration::minmax, 2, "bf16").precision == "bf16");
}

TEST_CASE("ranges: outliers count for minmax alone; infinities are refused") {
  Tensor t = Tensor::zeros(DType::f32, {100000});
  for (int64_t i = 0; i < t.count(); ++i) t.set_double(i, std::sin(static_cast<double>(i)));
  t.set_double(7, 50);
  RangeFinder f;
  f.see_bounds(t, "x");
  CHECK(f.range(Calibration::percentile).high == 50);  // before the distribution is known
  f.see_distribution(t);
  CHECK(f.range(Calibration::minmax).high == 50);
  CHECK(f.range(Calibration::percentile).high < 1.1);
  CHECK(f.range(Calibration::percentile).low < -0.9);
  CHECK(f.range(Calibration::entropy).high < 50);
  CHECK(f.range(Calibration::minmax).mean_square == doctest::Approx(0.525).epsilon(0.01));
  CHECK(calibration_from_name("entropy") == Calibration::entropy);
  expect_error(ErrorCode::usage, {"'best'", "minmax, percentile or entropy"},
               [] { calibration_from_name("best"); });
  t.set_double(3, HUGE_VAL);
  expect_error(ErrorCode::numeric, {"inf", "layer 3"}, [&] { f.see_bounds(t, "layer 3"); });
}
