// SPDX-License-Identifier: Apache-2.0
// pelton export: a plan, model or run as an ONNX file, or the weights of a run or file alone.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/run_model.h"
#include "onnx/export/export.h"
#include "register/registry.h"
#include "runtime/plan_file.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace pelton::cli {
namespace {

struct Options {
  std::string input, output;
  int64_t opset = onnx::ExportOptions().opset;
};

bool holds_weights(const std::string& path) {
  return path.ends_with(".safetensors") || path.ends_with(".npz");
}

void require_kind(const Options& o) {
  if (!holds_weights(o.output)) {
    if (!o.output.ends_with(".onnx"))
      throw Misuse{cat("'", o.output, "' has the ending of no file that is written"),
                   "end it with .onnx for a model, .safetensors or .npz for weights"};
    return;
  }
  if (is_zoo(o.input) || is_plan_file(o.input))
    throw Misuse{cat("weights alone are not written of ", is_zoo(o.input) ? "a built-in model" : "a plan"),
                 "name a training run, an ONNX file or a file of weights, or write X.onnx"};
}

int export_weights(const Options& o, const Globals& globals) {
  const std::map<std::string, Tensor> weights =
      train::is_run_folder(o.input) ? train::trained_weights(o.input) : train::read_weights(o.input);
  train::write_weights(o.output, weights);
  const uint64_t bytes = file_size_bytes(o.output);
  if (globals.json)
    print_json({{"weights", o.output}, {"bytes", bytes}, {"tensors", weights.size()}});
  else
    print_line(
        cat("wrote ", o.output, ": ", weights.size(), " tensors, ", bytes_text(static_cast<double>(bytes))));
  return 0;
}

int run(const Options& o, const Globals& globals) {
  require_kind(o);
  require_output(o.output, o.input);
  if (holds_weights(o.output)) return export_weights(o, globals);
  ir::Graph graph = is_plan_file(o.input) ? runtime::load_plan(o.input)->graph : model_of(o.input, {}).graph;
  onnx::ExportOptions options;
  options.opset = o.opset;
  with_place(o.input, [&] { onnx::export_file(graph, o.output, options); });
  uint64_t bytes = file_size_bytes(o.output);
  if (globals.json)
    print_json({{"model", o.output}, {"bytes", bytes}, {"nodes", graph.node_count()}});
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
  app.add_option("-o,--output", o->output, "ONNX file to write, or weights: .safetensors or .npz")
      ->required()
      ->type_name("X.onnx");
  app.add_option("--opset", o->opset, "oldest operator set that may be written; newer ops raise it")
      ->capture_default_str()
      ->type_name("N");
  return [o, &globals] { return run(*o, globals); };
}

}  // namespace pelton::cli
