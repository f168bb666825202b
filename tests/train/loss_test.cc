// SPDX-License-Identifier: Apache-2.0
#include "train/loss.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autodiff/autodiff.h"
#include "compiler/compile.h"
#include "register/registry.h"
#include "runtime/executable.h"

using namespace pelton;

TEST_CASE("loss: the gradient of rows that are certain is as exact as numbers around 1 allow") {
  constexpr int64_t kRows = 64, kClasses = 10;
  ir::Graph g;
  nn::Net net(g);
  const ir::ValueId x = g.add_input(ir::Type::tensor(DType::f32, {kRows, kClasses}), "x");
  const ir::ValueId label = g.add_input(ir::Type::tensor(DType::i64, {kRows}), "label");
  const train::Loss loss = train::build_loss(net, x, label, 1, {});
  g.add_output(autodiff::gradient(g, loss.sum, std::vector<ir::ValueId>{x})[0]);
  Tensor logits(DType::f32, {kRows, kClasses}), labels(DType::i64, {kRows});
  for (int64_t i = 0; i < kRows; ++i) {
    labels.set_int(i, i % kClasses);
    for (int64_t k = 0; k < kClasses; ++k)
      logits.set_double(i * kClasses + k, std::sin(static_cast<double>(i * 13 + k * 7)) * 3 +
                                              (k == i % kClasses ? 17 + 0.37 * static_cast<double>(i) : 0));
  }
  const device::Target target = device::detect_cpu(0);
  auto plan = std::make_shared<runtime::Plan>(compiler::compile(g, target, {}, registry()));
  const Tensor d =
      runtime::Executable::create(plan, registry(), target)->context().run_tensors({logits, labels})[0];
  double worst = 0;
  for (int64_t i = 0; i < kRows; ++i) {
    double sum = 0;
    const auto at = [&](int64_t k) { return logits.get_double(i * kClasses + k); };
    for (int64_t k = 0; k < kClasses; ++k) sum += std::exp(at(k) - at(i % kClasses));
    const double exact = 1 / sum - 1;
    worst = std::max(worst, std::abs(d.get_double(i * kClasses + i % kClasses) - exact));
  }
  // Two roundings of numbers around 1.
  CHECK(worst <= 1.3e-7);
}
