// SPDX-License-Identifier: Apache-2.0
// Every 2039th f32 (about two million values, both signs, all exponents) against the double functions.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "backend/cpu/harness.h"
#include "backend/cpu/tile/step.h"

using namespace pelton;
using namespace pelton::backend::cpu;

TEST_CASE("exp, log, tanh, erf and sigmoid are within 2 ulp") {
  struct Function {
    const char* name;
    Code code;
    double (*exact)(double);
  };
  const Function functions[] = {{"exp", Code::exp, [](double x) { return std::exp(x); }},
                                {"log", Code::log, [](double x) { return std::log(x); }},
                                {"tanh", Code::tanh, [](double x) { return std::tanh(x); }},
                                {"erf", Code::erf, [](double x) { return std::erf(x); }},
                                {"sigmoid", Code::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }}};
  std::vector<float> x;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 2039)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  std::vector<float> y(x.size());
  for (const Function& f : functions) {
    Step s;
    s.in[0] = x.data();
    s.out = y.data();
    f32_step(f.code, device::detect_cpu().isa)(s, static_cast<int64_t>(x.size()));
    double worst = 0;
    float where = 0;
    int wrong = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = f.exact(x[i]);
      if (std::isnan(exact)) {
        wrong += !std::isnan(y[i]);
        continue;
      }
      const auto rounded = static_cast<float>(exact);
      if (std::isinf(rounded)) {
        wrong += y[i] != rounded;
        continue;
      }
      const double error = std::abs(y[i] - exact) / test::ulp(exact, DType::f32);
      if (!(error <= worst)) {
        worst = error;
        where = x[i];
      }
    }
    CAPTURE(std::string(f.name));
    CAPTURE(where);
    CHECK(wrong == 0);
    CHECK(worst <= 2);
  }
}

TEST_CASE("exp, sigmoid, SiLU and tanh of a value do not depend on what lies beside it") {
  constexpr int64_t kCount = 4096;
  for (Code code : {Code::exp, Code::sigmoid, Code::silu, Code::tanh}) {
    std::vector<float> x(kCount), alone(kCount), beside(2 * kCount), y(2 * kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      x[i] = static_cast<float>(i - kCount / 2) * 0.0424f;
      beside[2 * i] = x[i];
      beside[2 * i + 1] = i % 2 ? 1e4f : -1e4f;  // beyond what gives a normal number
    }
    Step s;
    s.in[0] = x.data();
    s.out = alone.data();
    f32_step(code, device::detect_cpu().isa)(s, kCount);
    s.in[0] = beside.data();
    s.out = y.data();
    f32_step(code, device::detect_cpu().isa)(s, 2 * kCount);
    for (int64_t i = 0; i < kCount; ++i)
      CHECK(std::bit_cast<uint32_t>(alone[i]) == std::bit_cast<uint32_t>(y[2 * i]));
  }
}
