// SPDX-License-Identifier: Apache-2.0
// Choices by timing on the GPU: precisions, a time budget, and new weights for a plan that is loaded.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "device/device.h"
#include "device/timing_budget.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "register/artifacts.h"
#include "register/model.h"
#include "register/registry.h"
#include "runtime/executable.h"
#include "runtime/refit.h"

using namespace pelton;

namespace {

Tensor numbers(DType type, Dims dims, uint64_t seed, double scale) {
  Tensor t(type, std::move(dims));
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (int64_t i = 0; i < t.count(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    t.set_double(i, (static_cast<double>(state >> 40) * 0x1p-24 - 0.5) * scale);
  }
  return t;
}

// Products by constants named w0, w1, ...
ir::Graph chain(int count, int64_t size) {
  ir::Graph g("chain");
  ir::Builder b(g);
  ir::ValueId at = g.add_input(ir::Type::tensor(DType::f32, to_shape({256, size})), "x");
  for (int i = 0; i < count; ++i) {
    const ir::ValueId w = b.constant(numbers(DType::f32, {size, size}, static_cast<uint64_t>(i) + 1,
                                             3.4 / std::sqrt(static_cast<double>(size))));
    g.edit(w).name = cat("w", i);
    at = b.op("matmul", {at, w});
  }
  g.add_output(at);
  return g;
}

runtime::Plan compile(ir::Graph graph, const std::string& precision) {
  Model model;
  model.graph = std::move(graph);
  CompileOptions options;
  options.precision = precision;
  return compile_model(std::move(model), find_device("cuda", 0), options);
}

}  // namespace

TEST_CASE("gpu: precision best is the fastest of those that hold, and near f32") {
  const device::Target target = find_device("cuda", 0);
  ir::Graph g = chain(8, 2048);
  const std::vector<ir::HostValue> x = {ir::HostValue(numbers(DType::f32, {256, 2048}, 99, 2))};
  auto plan = std::make_shared<runtime::Plan>(compile(g, "best"));
  auto exact = std::make_shared<runtime::Plan>(compile(g, "fp32"));
  std::string notes;
  for (const runtime::PassReport& p : plan->passes)
    if (p.name == "best")
      for (const std::string& note : p.notes) notes += note + "; ";
  std::printf("best: %s, %s\n", plan->precision.c_str(), notes.c_str());
  CHECK(plan->precision != "fp32");  // tensor cores are many times as fast at these sizes
  const Tensor got = runtime::Executable::create(plan, registry(), target)->run(x)[0].tensor;
  const Tensor want = runtime::Executable::create(exact, registry(), target)->run(x)[0].tensor;
  double error = 0, size = 0;
  for (int64_t i = 0; i < want.count(); ++i) {
    error += std::pow(got.get_double(i) - want.get_double(i), 2);
    size += std::pow(want.get_double(i), 2);
  }
  CHECK(std::sqrt(error / size) < 0.03);  // eight roundings to 8 bits, two operands each
}

TEST_CASE("gpu: a time budget that is spent leaves choices out, and the plan runs") {
  runtime::Plan plan = compile(chain(3, 1000 + 8), "fp16");
  const device::Target target = find_device("cuda", 0);
  int64_t left = 0;
  {
    device::TimingBudget none(0);
    const ArtifactReport report = make_artifacts(plan, target);
    CHECK(report.timed);
    left = none.left_out();
  }
  CHECK(left > 0);
  auto e = runtime::Executable::create(std::make_shared<runtime::Plan>(plan), registry(), target);
  const Tensor y = e->run({ir::HostValue(numbers(DType::f32, {256, 1008}, 5, 2))})[0].tensor;
  CHECK(std::isfinite(y.get_double(0)));
}

TEST_CASE(
    "gpu: new weights for a loaded plan cost little more than their copy, and runs in flight keep the old") {
  const device::Target target = find_device("cuda", 0);
  constexpr int kCount = 16;
  constexpr int64_t kSize = 2048;
  ir::Graph g = chain(kCount, kSize);
  auto plan = std::make_shared<const runtime::Plan>(compile(g, "fp32"));
  auto old = runtime::Executable::create(plan, registry(), target);
  const std::vector<ir::HostValue> x = {ir::HostValue(numbers(DType::f32, {256, kSize}, 99, 2))};
  runtime::Context in_flight = old->context();
  const Tensor before = in_flight.run(x)[0].tensor;
  std::map<std::string, Tensor> weights;
  int64_t bytes = 0;
  for (int i = 0; i < kCount; ++i) {
    weights[cat("w", i)] = numbers(DType::f32, {kSize, kSize}, 1000 + static_cast<uint64_t>(i),
                                   3.4 / std::sqrt(static_cast<double>(kSize)));
    bytes += weights[cat("w", i)].bytes();
  }
  // The copy alone, of the same bytes.
  double copy = 1e9, refit = 1e9;
  std::shared_ptr<device::Device> device = old->shared_device();
  for (int round = 0; round < 3; ++round) {
    std::vector<device::Memory> memory;
    std::unique_ptr<device::Stream> stream = device->make_stream();
    for (const auto& [name, t] : weights) memory.emplace_back(device, t.bytes(), "a test");
    Stopwatch watch;
    size_t i = 0;
    for (const auto& [name, t] : weights) stream->upload(memory[i++].get(), t.data(), t.bytes());
    stream->synchronize();
    copy = std::min(copy, watch.seconds());
  }
  Tensor after;
  for (int round = 0; round < 3; ++round) {
    Stopwatch watch;
    auto fresh = runtime::Executable::create(runtime::refit(*plan, weights), registry(), target);
    after = fresh->run(x)[0].tensor;  // prepares, copies the weights, and runs once
    refit = std::min(refit, watch.seconds());
  }
  std::printf("refit of %.0f MB: %.2f ms, copy alone %.2f ms\n", static_cast<double>(bytes) * 1e-6,
              refit * 1e3, copy * 1e3);
  CHECK(refit < 2 * copy);
  CHECK(!after.same_bytes(before));
  CHECK(in_flight.run(x)[0].tensor.same_bytes(before));
  ir::Graph changed = g;
  for (ir::NodeId id : changed.order())
    if (changed[id].is("constant"))
      changed.edit(id).attrs["value"] = weights.at(changed[changed[id].outputs[0]].name);
  auto fresh_plan = std::make_shared<const runtime::Plan>(compile(changed, "fp32"));
  CHECK(runtime::Executable::create(fresh_plan, registry(), target)->run(x)[0].tensor.same_bytes(after));
}
