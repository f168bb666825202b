// SPDX-License-Identifier: Apache-2.0
// Real models on the reference interpreter against the numbers of another implementation.
#include <doctest/doctest.h>

#include <filesystem>

#include "base/file.h"
#include "cli/conform/golden.h"
#include "interp/interpreter.h"
#include "support/skip.h"

using namespace pelton;
namespace fs = std::filesystem;

namespace {

const fs::path kModels = "../shared/real/models";

std::vector<ir::HostValue> reference(const ir::Graph& graph, const std::vector<ir::HostValue>& inputs) {
  return interp::run(graph, inputs).outputs;
}

}  // namespace

TEST_CASE("golden outputs of real models") {
  if (!fs::exists(kModels)) PELTON_SKIP("../shared/real is absent");
  int checked = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kModels)) {
    std::string path = entry.path().string();
    if (!path.ends_with(".golden.json")) continue;
    std::string model = path.substr(0, path.size() - std::string(".golden.json").size()) + ".onnx";
    if (!file_exists(model)) continue;
    CAPTURE(model);
    std::string reason = cli::run_golden(model, path, reference);
    CHECK_MESSAGE(reason.empty(), reason);
    ++checked;
  }
  CHECK(checked >= 20);
}

TEST_CASE("models that cannot be imported say why") {
  if (!fs::exists(kModels)) PELTON_SKIP("../shared/real is absent");
  auto message = [](const char* name) {
    try {
      onnx::import_file((kModels / "negative" / name).string());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(message("git-lfs-pointer.onnx").find("Git LFS pointer") != std::string::npos);
  CHECK(message("nanogpt-opset10-float-equal.onnx").find("Equal") != std::string::npos);
  CHECK(message("superres-with-image-codec-ops.onnx").find("com.microsoft.extensions") != std::string::npos);
}
