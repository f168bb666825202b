// SPDX-License-Identifier: Apache-2.0
// What random ops draw follows the law they name. Draws are a pure function of seed, step, node and index, so
// these checks have one outcome for ever; their bounds are those of tests that a sound generator fails once
// in 1,000 to 10,000 seeds.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/cat.h"
#include "interp/interpreter.h"
#include "ir/text.h"
#include "tensor/tensor.h"

using namespace pelton;

namespace {

constexpr int64_t kDraws = 20000;
using Values = std::vector<double>;

std::vector<Values> run(const std::string& text, uint64_t seed, uint64_t step = 0,
                        const std::vector<Tensor>& inputs = {}) {
  interp::Options options;
  options.random.seed = seed;
  options.random.step = step;
  std::vector<ir::HostValue> values(inputs.begin(), inputs.end());
  std::vector<Values> out;
  for (const ir::HostValue& v : interp::run(ir::parse_graph(text), values, {}, options).outputs)
    out.push_back(to_doubles(v.tensor));
  return out;
}
std::string one_node(std::string_view parameters, std::string_view call, std::string_view type) {
  return cat("graph \"g\"(", parameters, ") {\n  %0 = ", call, " : ", type, "\n  return %0\n}");
}

// Kolmogorov-Smirnov: the largest distance between the distribution of `values` and `law`, in units in which
// 1.95 is passed once in 1,000.
double distance(Values values, const std::function<double(double)>& law) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double most = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double p = law(values[i]), below = static_cast<double>(i) / n;
    most = std::max({most, std::fabs(p - below), std::fabs(p - below - 1 / n)});
  }
  return most * std::sqrt(n);
}
// Correlation in units of its standard deviation for independent values.
double correlation(const Values& a, const Values& b) {
  const auto n = static_cast<double>(a.size());
  double ma = 0, mb = 0, ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) ma += a[i] / n, mb += b[i] / n;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - ma) * (b[i] - mb);
    aa += (a[i] - ma) * (a[i] - ma);
    bb += (b[i] - mb) * (b[i] - mb);
  }
  return std::fabs(ab / std::sqrt(aa * bb)) * std::sqrt(n);
}
// Distance of a count from its mean in standard deviations.
double deviation(double count, double n, double p) {
  return std::fabs(count - n * p) / std::sqrt(n * p * (1 - p));
}

const std::string kUniform =
    one_node("", cat("random_uniform() {dims = dims[", kDraws, "], dtype = f32, low = -1.0, high = 3.0}"),
             cat("f32[", kDraws, "]"));

}  // namespace

TEST_CASE("uniform and normal values follow their laws") {
  const std::string normal =
      one_node("", cat("random_normal() {dims = dims[", kDraws, "], dtype = f32, mean = 2.0, scale = 3.0}"),
               cat("f32[", kDraws, "]"));
  for (uint64_t seed : {0, 1, 12345}) {
    CAPTURE(seed);
    Values u = run(kUniform, seed)[0];
    CHECK(distance(u, [](double x) { return (x + 1) / 4; }) < 1.95);
    CHECK(*std::min_element(u.begin(), u.end()) >= -1);
    CHECK(*std::max_element(u.begin(), u.end()) < 3);
    Values z = run(normal, seed)[0];
    CHECK(distance(z, [](double x) { return 0.5 * std::erfc(-(x - 2) / 3 / std::sqrt(2.0)); }) < 1.95);
    // The tails are there: 14 of 20,000 values lie more than 3.2 standard deviations away on each side.
    CHECK(*std::max_element(z.begin(), z.end()) > 2 + 3 * 3.2);
    CHECK(*std::min_element(z.begin(), z.end()) < 2 - 3 * 3.2);
  }
}

TEST_CASE("neighbours, seeds, steps and nodes draw independently") {
  const Values a = run(kUniform, 7)[0];
  CHECK(run(kUniform, 7)[0] == a);
  CHECK(correlation(a, run(kUniform, 8)[0]) < 4);
  CHECK(correlation(a, run(kUniform, 7, 1)[0]) < 4);
  for (size_t lag : {1, 2, 4, 256}) {
    CAPTURE(lag);
    CHECK(correlation(Values(a.begin(), a.end() - static_cast<std::ptrdiff_t>(lag)),
                      Values(a.begin() + static_cast<std::ptrdiff_t>(lag), a.end())) < 4);
  }
  const std::string call =
      cat("random_normal() {dims = dims[", kDraws, "], dtype = f32} : f32[", kDraws, "]");
  auto two = run(cat("graph \"g\"() {\n  %0 = ", call, "\n  %1 = ", call, "\n  return %0, %1\n}"), 7);
  CHECK(correlation(two[0], two[1]) < 4);
}

TEST_CASE("bernoulli and dropout keep the probability they are given") {
  for (double p : {0.05, 0.5, 0.9}) {
    CAPTURE(p);
    const auto n = static_cast<double>(kDraws);
    Tensor ps(DType::f32, {kDraws}), ones(DType::f32, {kDraws});
    for (int64_t i = 0; i < kDraws; ++i) ps.set_double(i, p), ones.set_double(i, 1);
    const std::string type = cat("f32[", kDraws, "]");
    Values hits = run(one_node(cat("%p: ", type), "bernoulli(%p) {dtype = f32}", type), 3, 0, {ps})[0];
    CHECK(deviation(static_cast<double>(std::count(hits.begin(), hits.end(), 1.0)), n, p) < 4);
    Values kept = run(one_node(cat("%x: ", type, ", %r: f32[]"), "dropout(%x, %r)", type), 3, 0,
                      {ones, Tensor::from<float>({}, {static_cast<float>(p)})})[0];
    const auto zeros = static_cast<double>(std::count(kept.begin(), kept.end(), 0.0));
    CHECK(deviation(zeros, n, p) < 4);
    // What is kept is scaled so that the mean stays.
    for (double v : kept)
      if (v != 0) CHECK(v == doctest::Approx(1 / (1 - p)).epsilon(1e-6));
  }
}

TEST_CASE("multinomial draws classes by the softmax of their logits") {
  const std::vector<float> logits = {0, 1, 2, -1, -INFINITY};
  double sum = 0;
  for (float l : logits) sum += std::exp(l);
  Values drawn = run(one_node("%l: f32[1,5]", cat("multinomial(%l) {dtype = i64, samples = ", kDraws, "}"),
                              cat("i64[1,", kDraws, "]")),
                     11, 0, {Tensor::from<float>({1, 5}, logits)})[0];
  double chi_square = 0;
  for (size_t k = 0; k < logits.size(); ++k) {
    const auto count = static_cast<double>(std::count(drawn.begin(), drawn.end(), static_cast<double>(k)));
    const double expected = std::exp(logits[k]) / sum * static_cast<double>(kDraws);
    if (expected == 0)
      CHECK(count == 0);
    else
      chi_square += (count - expected) * (count - expected) / expected;
  }
  CHECK(chi_square < 16.3);  // 3 degrees of freedom: once in 1,000
}
