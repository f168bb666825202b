// SPDX-License-Identifier: Apache-2.0
// pelton export: a plan or model as an ONNX file.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/run_model.h"
#include "onnx/export/export.h"
#include "register/registry.h"
#include "runtime/plan_file.h"

namespace pelton::cli {
namespace {

struct Options {
  std::string input, output;
  int64_t opset = onnx::ExportOptions().opset;
};

int run(const Options& o, const Globals& globals) {
  ir::Graph graph = is_plan_file(o.input) ? runtime::load_plan(o.input)->graph : model_of(o.input, {}).graph;
  onnx::ExportOptions options;
  options.opset = o.opset;
  with_place(o.input, [&] { onnx::export_file(graph, o.output, options); });
  uint64_t bytes = file_size_bytes(o.output);
  if (globals.json)
    print_line(nlohmann::json{{"model", o.output}, {"bytes", bytes}, {"nodes", graph.node_count()}}.dump());
  else
    print_line(cat("wrote ", o.output, ": ", bytes_text(static_cast<double>(bytes))));
  return 0;
}

}  // namespace

Run make_export(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<Options>();
  app.add_option("plan", o->input, "plan, model or folder of a training run")
      ->required()
      ->type_name("PLAN_OR_MODEL");
  app.add_option("-o,--output", o->output, "ONNX file to write")->required()->type_name("X.onnx");
  app.add_option("--opset", o->opset, "oldest operator set that may be written; newer ops raise it")
      ->capture_default_str()
      ->type_name("N");
  return [o, &globals] { return run(*o, globals); };
}

}  // namespace pelton::cli
