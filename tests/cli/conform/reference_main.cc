// SPDX-License-Identifier: Apache-2.0
// conform_reference [--symbolic] [--round-trip] [--export FOLDER] DIR|MODEL.onnx...: conformance cases, or a
// model with its golden runs, on the reference interpreter; one line a failure.
#include <cstdio>
#include <cstring>

#include "cli/conform/golden.h"
#include "interp/interpreter.h"

int main(int argc, char** argv) {
  using namespace pelton;
  cli::CaseOptions how;
  std::vector<std::string> folders, models;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--symbolic") == 0)
      how.symbolic = true;
    else if (std::strcmp(argv[i], "--round-trip") == 0)
      how.round_trip = true;
    else if (std::strcmp(argv[i], "--export") == 0 && i + 1 < argc)
      how.round_trip = true, how.export_folder = argv[++i];
    else
      (std::string_view(argv[i]).ends_with(".onnx") ? models : folders).emplace_back(argv[i]);
  }
  if (folders.empty() && models.empty()) {
    std::fputs("usage: conform_reference [--symbolic] [--round-trip] [--export FOLDER] DIR|MODEL.onnx...\n",
               stderr);
    return 2;
  }
  auto run = [](const ir::Graph& graph, const std::vector<ir::HostValue>& inputs) {
    return interp::run(graph, inputs).outputs;
  };
  int passed = 0, failed = 0;
  auto count = [&](const std::string& name, const std::string& reason) {
    ++(reason.empty() ? passed : failed);
    if (!reason.empty()) std::printf("FAIL %s: %s\n", name.c_str(), reason.c_str());
  };
  try {
    for (const std::string& model : models)
      count(model, cli::run_golden(model, model.substr(0, model.size() - 5) + ".golden.json", run));
    for (const cli::Case& one : cli::find_cases(folders)) count(one.name, cli::run_case(one, run, how));
  } catch (const Error& e) {
    std::fprintf(stderr, "conform_reference: error: %s\n", e.what());
    return 1;
  }
  std::printf("%d passed, %d failed, 0 skipped\n", passed, failed);
  return failed ? 1 : 0;
}
