// SPDX-License-Identifier: Apache-2.0
// Real models with golden runs (NAME.golden.json beside NAME.onnx) on the GPU, in f32. PELTON_REAL_MODELS
// names their folder.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "cli/conform/golden.h"
#include "register/model.h"
#include "register/registry.h"
#include "runtime/executable.h"
#include "support/skip.h"

using namespace pelton;

namespace {

// Compiled, then run until it is played from its recording; the last results count.
std::vector<ir::HostValue> run_on_gpu(const ir::Graph& graph, const std::vector<ir::HostValue>& inputs) {
  device::Target target = find_device("cuda", 0);
  Model model;
  model.graph = graph;
  auto plan = std::make_shared<runtime::Plan>(compile_model(std::move(model), target, {}));
  auto e = runtime::Executable::create(plan, registry(), target);
  std::vector<ir::HostValue> out;
  for (int round = 0; round < 3; ++round) out = e->run(inputs);
  return out;
}

}  // namespace

TEST_CASE("gpu: real models") {
  const char* folder = std::getenv("PELTON_REAL_MODELS");
  if (!folder || !std::filesystem::exists(folder)) PELTON_SKIP("no real models");
  int models = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    std::string golden = entry.path().string();
    if (!golden.ends_with(".golden.json")) continue;
    std::string model = golden.substr(0, golden.size() - std::string(".golden.json").size()) + ".onnx";
    if (!std::filesystem::exists(model)) continue;
    CAPTURE(model);
    std::string reason;
    try {
      reason = cli::run_golden(model, golden, run_on_gpu);
    } catch (const Error& e) {
      reason = e.what();
      if (e.code() == ErrorCode::device_lost) FAIL(reason);
    }
    CHECK(reason == "");
    ++models;
  }
  CHECK(models > 0);
}
