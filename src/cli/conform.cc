// SPDX-License-Identifier: Apache-2.0
// pelton conform: ONNX backend-test folders (model.onnx, test_data_set_*/input_N.pb, output_N.pb).
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/conform/cases.h"
#include "cli/inputs.h"
#include "interp/interpreter.h"
#include "register/model.h"
#include "register/registry.h"
#include "runtime/executable.h"

namespace pelton::cli {
namespace {

using nlohmann::json;

struct Options {
  std::vector<std::string> folders;
  std::string path = "optimised";
  Tolerance tolerance;
  bool symbolic = false, round_trip = false;
};

constexpr size_t kMaxNodesReported = 1000;

void add_node(json& ran, const ir::Graph& graph, ir::NodeId node, std::string_view implementation) {
  if (ran.size() < kMaxNodesReported)
    ran.push_back({{"node", graph.describe(node)}, {"implementation", std::string(implementation)}});
}

std::vector<ir::HostValue> run_reference(const ir::Graph& graph, const std::vector<ir::HostValue>& inputs,
                                         json& ran) {
  interp::Options options;
  options.observe = [&](ir::NodeId node, const auto&) { add_node(ran, graph, node, runtime::kReference); };
  return interp::run(graph, inputs, {}, options).outputs;
}

// The graph compiled for this machine and run; what ran where goes into `ran`.
std::vector<ir::HostValue> run_compiled(const ir::Graph& graph, const std::vector<ir::HostValue>& inputs,
                                        const device::Target& target, json& ran) {
  Model model;
  model.graph = graph;
  auto plan = std::make_shared<runtime::Plan>(compile_model(std::move(model), target, {}));
  auto executable = runtime::Executable::create(plan, registry(), target);
  runtime::RunOptions options;
  options.observe = [&](const runtime::StepEvent& e) { add_node(ran, e.graph, e.node, e.implementation); };
  return executable->run(inputs, options);
}

int run(const Options& o, const Globals& globals) {
  require_amount(o.tolerance.rtol, "--rtol");
  require_amount(o.tolerance.atol, "--atol");
  if (o.path != "reference" && o.path != "optimised")
    throw Misuse{cat("--path is '", o.path, "'"), "use reference or optimised"};
  device::Target target = globals.target();
  std::vector<Case> cases = find_cases(o.folders);
  CaseOptions how;
  how.symbolic = o.symbolic;
  how.round_trip = o.round_trip;
  int64_t passed = 0, failed = 0;
  Progress progress("conform", static_cast<int64_t>(cases.size()));
  for (Case& one : cases) {
    throw_if_interrupted();
    // A case's own tolerances, where it has any, stand above those of the command line.
    Tolerance standard;
    if (one.tolerance.rtol == standard.rtol) one.tolerance.rtol = o.tolerance.rtol;
    if (one.tolerance.atol == standard.atol) one.tolerance.atol = o.tolerance.atol;
    json ran = json::array();
    auto execute = [&](const ir::Graph& graph, const std::vector<ir::HostValue>& inputs) {
      return o.path == "reference" ? run_reference(graph, inputs, ran)
                                   : run_compiled(graph, inputs, target, ran);
    };
    std::string reason;
    try {
      reason = run_case(one, execute, how);
    } catch (const std::exception& e) {
      reason = e.what();
    }
    ++(reason.empty() ? passed : failed);
    progress.add();
    if (globals.json)
      print_json({{"case", one.name},
                  {"status", reason.empty() ? "passed" : "failed"},
                  {"reason", reason},
                  {"ran", ran}});
    else if (!reason.empty())
      print_line(cat("FAILED ", one.name, ": ", reason));
  }
  if (globals.json)
    print_json({{"final", true}, {"passed", passed}, {"failed", failed}, {"skipped", 0}});
  else
    print_line(cat(passed, " passed, ", failed, " failed, 0 skipped"));
  return failed ? 1 : 0;
}

}  // namespace

Run make_conform(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<Options>();
  app.add_option("folders", o->folders, "a test folder, or folders of them")->required()->type_name("DIR...");
  app.add_option("--path", o->path, "optimised, or reference: the interpreter on the graph as imported")
      ->capture_default_str();
  app.add_flag("--symbolic", o->symbolic, "make every dimension of every input a symbol");
  app.add_flag("--round-trip", o->round_trip, "write each graph as ONNX and read it back first");
  app.add_option("--rtol", o->tolerance.rtol, "relative tolerance")->capture_default_str();
  app.add_option("--atol", o->tolerance.atol, "absolute tolerance")->capture_default_str();
  return [o, &globals] { return run(*o, globals); };
}

}  // namespace pelton::cli
