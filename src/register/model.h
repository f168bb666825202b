// SPDX-License-Identifier: Apache-2.0
// Models and plans from files of any kind that Pelton reads, told apart by their content.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "runtime/plan.h"

namespace pelton {

enum class FileKind { plan, onnx, ir_text };
// bad_format for what is none of them; a Git LFS pointer and an empty file are named as such.
FileKind kind_of_file(const std::string& path);

struct Model {
  ir::Graph graph;
  std::string format;                     // "onnx", "ir"
  std::string name;                       // file name without folders
  std::map<std::string, int64_t> opsets;  // ONNX
  std::string producer;
  std::shared_future<std::string> sha256;  // of the file, computed meanwhile; only if asked for
};

struct CompileOptions {
  std::map<std::string, std::string> shapes;  // input name to 1x3x224x224 or ranges min:opt:max
  std::string precision = "fp32";
  bool strict = false;         // fused groups round 16-bit values as ops that run alone
  bool deterministic = false;  // nothing is chosen by timing: the same bits in every process
  bool frozen = false;         // the plan's weights cannot be replaced
  std::vector<std::string> disabled, print_after;  // passes
  // Where --print-after goes.
  std::function<void(std::string_view pass, const std::string& text)> print;
  bool hash_source = false;  // fill Model::sha256
  bool trusted = true;       // runtime::LoadOptions::trusted of a plan file
  bool finishes = false;     // compiler::Options::finishes
  bool only_runs = false;    // nobody but executables reads the plan: runtime::LoadOptions::late
};

Model load_model(const std::string& path, const CompileOptions& options = {});
runtime::Plan compile_model(Model model, const device::Target& target, const CompileOptions& options);
// A plan file as it is, a model compiled.
std::shared_ptr<const runtime::Plan> open_plan(const std::string& path, const device::Target& target,
                                               const CompileOptions& options = {});

}  // namespace pelton
