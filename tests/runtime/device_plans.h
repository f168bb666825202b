// SPDX-License-Identifier: Apache-2.0
// Plans on the fake device, and runs of them held against the interpreter.
#pragma once

#include <doctest/doctest.h>

#include "interp/interpreter.h"
#include "ir/text.h"
#include "runtime/executable.h"
#include "runtime/fake_registry.h"

namespace pelton::test {

inline std::shared_ptr<const runtime::Executable> load(const std::string& text,
                                                       runtime::ExecutableOptions options = {}) {
  auto plan = std::make_shared<runtime::Plan>();
  plan->graph = ir::parse_graph(text);
  plan->target = device::cuda_target(90);
  options.check_memory = true;
  return runtime::Executable::create(plan, fake_registry(), plan->target, options);
}

inline Tensor ramp(Dims dims, float start = 0) {
  Tensor t(DType::f32, dims);
  for (int64_t i = 0; i < t.count(); ++i) t.set_double(i, start + static_cast<double>(i) * 0.25);
  return t;
}

inline void same(const std::vector<ir::HostValue>& got, const std::vector<ir::HostValue>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].tensor.str() == expected[i].tensor.str());
    CHECK(got[i].tensor.same_bytes(expected[i].tensor));
  }
}

// Several runs on one context: step by step, recorded, played, each on other values.
inline void same_as_interpreter(const runtime::Executable& e, const std::vector<Tensor>& inputs) {
  runtime::Context c = e.context();
  for (int round = 0; round < 4; ++round) {
    CAPTURE(round);
    std::vector<ir::HostValue> values;
    for (const Tensor& t : inputs) {
      values.emplace_back(t.clone());
      if (t.count() && t.dtype() == DType::f32) values.back().tensor.set_double(0, round * 3.5 + 1);
    }
    same(c.run(values), interp::run(e.graph(), values).outputs);
  }
}

// neg of f32 has a CPU kernel too; exp runs on neither and takes the reference function.
inline constexpr const char* kMixed = R"(graph "mixed"(%x: f32[N,4], %b: f32[4]) {
  symbol N in [0, 1000]
  %0 = add(%x, %b) : f32[N,4]
  %1 = neg(%0) : f32[N,4]
  %2 = exp(%1) : f32[N,4]
  %3 = reshape(%2) {dims = dims[4*N]} : f32[4*N]
  %4 = neg(%3) : f32[4*N]
  %5 = add(%4, %3) : f32[4*N]
  %6 = mul(%5, %3) : f32[4*N]
  return %6 @"y", %1 @"z", %2 @"e"
})";

inline constexpr const char* kPure = R"(graph "pure"(%x: f32[N,4], %b: f32[4]) {
  symbol N in [0, 1000000000]
  %w = constant() {value = tensor<f32[4]>{1, 2, 3, 4}} : f32[4]
  %0 = add(%x, %b) : f32[N,4]
  %1 = mul(%0, %w) : f32[N,4]
  %2 = neg(%1) : f32[N,4]
  return %2 @"y", %0 @"s"
})";

}  // namespace pelton::test
