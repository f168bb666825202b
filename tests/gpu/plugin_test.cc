// SPDX-License-Identifier: Apache-2.0
// Custom ops of a plug-in with an entry for GPUs (examples/custom_op/gpu.cu): one that is recorded and
// played, one that says that it cannot be.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include "interp/interpreter.h"
#include "ir/text.h"
#include "register/model.h"
#include "register/registry.h"
#include "runtime/executable.h"
#include "runtime/plugin.h"
#include "support/beside.h"

using namespace pelton;

namespace {

const std::string kPlugin = pelton::test::next_to_binary(PELTON_EXAMPLE_GPU_PLUGIN);

// Before any test asks for the registry: implementations come before the first model.
const std::string load_error = [] {
  try {
    runtime::load_plugin(kPlugin);
    return std::string();
  } catch (const Error& e) {
    return std::string(e.what());
  }
}();

int calls(int centered) {
  void* library = dlopen(kPlugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto function = reinterpret_cast<int (*)(int)>(dlsym(library, "example_gpu_calls"));
  REQUIRE_MESSAGE(static_cast<bool>(function), "no function example_gpu_calls");
  return function(centered);
}

}  // namespace

TEST_CASE("gpu: custom ops of a plug-in, recorded and not") {
  REQUIRE(load_error == "");
  ir::Graph graph = ir::parse_graph(R"(graph "g"(%x: f32[5,700]) {
  %0 = custom(%x) {domain = "example", name = "cube"} : f32[5,700]
  %1 = custom(%0) {domain = "example", name = "centered"} : f32[5,700]
  %2 = neg(%1) : f32[5,700]
  %3 = custom(%2) {domain = "example", name = "cube"} : f32[5,700]
  return %3 @"y"
})");
  Model model;
  model.graph = graph;
  auto plan = std::make_shared<runtime::Plan>(compile_model(std::move(model), find_device("cuda", 0), {}));
  auto e = runtime::Executable::create(plan, registry(), find_device("cuda", 0));
  int cubes = 0, centered = 0;
  for (const runtime::Choice& c : e->choices()) {
    cubes += c.implementation == "example.cube_gpu";
    centered += c.implementation == "example.centered_gpu";
  }
  CHECK(cubes == 2);
  CHECK(centered == 1);
  runtime::Context context = e->context();
  const int cubes_before = calls(0), centered_before = calls(1);
  constexpr int kRuns = 6;
  for (int run = 0; run < kRuns; ++run) {
    Tensor x(DType::f32, {5, 700});
    for (int64_t i = 0; i < x.count(); ++i)
      x.set_double(i, static_cast<double>((i * 37 + run * 11) % 101) / 101);
    const Tensor y = context.run({ir::HostValue(x)})[0].tensor;
    const Tensor wanted = interp::run(graph, {ir::HostValue(x)}).outputs[0].tensor;
    double worst = 0;
    for (int64_t i = 0; i < y.count(); ++i)
      worst = std::max(worst, std::abs(y.get_double(i) - wanted.get_double(i)));
    CHECK(worst < 1e-6);  // values below 1, a few roundings each
  }
  CHECK(calls(0) - cubes_before == 4);  // two nodes, once enqueued and once recorded
  CHECK(calls(1) - centered_before == kRuns);
}
