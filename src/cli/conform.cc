// SPDX-License-Identifier: Apache-2.0
// pelton conform: ONNX backend-test folders (model.onnx, test_data_set_*/input_N.pb, output_N.pb).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/compare.h"
#include "cli/inputs.h"
#include "cli/pb_value.h"
#include "interp/interpreter.h"
#include "register/registry.h"
#include "runtime/executable.h"

namespace pelton::cli {
namespace {

namespace fs = std::filesystem;
using ir::HostValue;

struct Options {
  std::vector<std::string> folders;
  std::string path = "optimised";
  double rtol = 1e-3, atol = 1e-7;
};

struct Case {
  fs::path folder;
  enum class Status { passed, failed, skipped } status = Status::passed;
  std::string reason;
  std::vector<std::pair<std::string, std::string>> ran;  // node, implementation
};

// A folder with model.onnx is a case; another one is searched for cases, in order of names.
void find_cases(const fs::path& folder, std::vector<Case>& out) {
  std::error_code ec;
  if (!fs::is_directory(folder, ec)) fail(ErrorCode::not_found, "there is no such folder", folder.string());
  if (fs::exists(folder / "model.onnx", ec)) {
    out.push_back({folder, {}, {}, {}});
    return;
  }
  std::vector<fs::path> inner;
  for (const auto& entry : fs::directory_iterator(folder, ec))
    if (entry.is_directory()) inner.push_back(entry.path());
  std::sort(inner.begin(), inner.end());
  for (const fs::path& p : inner) find_cases(p, out);
}

// data.json of a case: {"rtol": ..., "atol": ...}, either may be left out.
void own_tolerance(const fs::path& folder, double& rtol, double& atol) {
  fs::path file = folder / "data.json";
  if (!fs::exists(file)) return;
  auto j = nlohmann::json::parse(read_file(file.string()), nullptr, false);
  if (!j.is_object()) fail(ErrorCode::bad_format, "it is no JSON object", file.string());
  rtol = j.value("rtol", rtol);
  atol = j.value("atol", atol);
}

std::string compare_values(const HostValue& got, const HostValue& expected, double rtol, double atol) {
  if (got.kind != expected.kind) return "is of another kind";
  if (got.kind == ir::TypeKind::tensor) return compare(got.tensor, expected.tensor, rtol, atol).reason;
  if (got.items.size() != expected.items.size())
    return cat("has ", got.items.size(), " items, expected ", expected.items.size());
  for (size_t i = 0; i < got.items.size(); ++i)
    if (std::string r = compare_values(got.items[i], expected.items[i], rtol, atol); !r.empty())
      return cat("item ", i, ": ", r);
  return "";
}

std::vector<HostValue> execute(const Options& o, const runtime::Executable* executable, const ir::Graph& g,
                               const std::vector<HostValue>& inputs, Case& c) {
  if (o.path == "reference") return interp::run(g, inputs).outputs;
  runtime::RunOptions options;
  options.observe = [&](const runtime::StepEvent& e) {
    if (c.ran.size() < 1000) c.ran.emplace_back(e.graph.describe(e.node), std::string(e.implementation));
  };
  return executable->run(inputs, options);
}

void run_case(Case& c, const Options& o, const device::Target& target) {
  double rtol = o.rtol, atol = o.atol;
  own_tolerance(c.folder, rtol, atol);
  std::string file = (c.folder / "model.onnx").string();
  Model model = load_model(file);
  std::unique_ptr<ir::Graph> graph;
  std::shared_ptr<const runtime::Executable> executable;
  if (o.path == "reference") {
    graph = std::make_unique<ir::Graph>(std::move(model.graph));
  } else {
    auto plan = std::make_shared<runtime::Plan>(compile_model(std::move(model), target, {}));
    executable = runtime::Executable::create(plan, registry(), target);
  }
  const ir::Graph& g = graph ? *graph : executable->graph();
  int sets = 0;
  for (;; ++sets) {
    fs::path set = c.folder / cat("test_data_set_", sets);
    if (!fs::exists(set)) break;
    std::vector<HostValue> inputs, expected;
    for (size_t i = 0; i < g.inputs.size(); ++i)
      inputs.push_back(load_pb(set / cat("input_", i, ".pb"), g.type(g.inputs[i])));
    for (size_t i = 0; i < g.outputs.size(); ++i)
      expected.push_back(load_pb(set / cat("output_", i, ".pb"), g.type(g.outputs[i])));
    std::vector<HostValue> got = execute(o, executable.get(), g, inputs, c);
    for (size_t i = 0; i < got.size(); ++i)
      if (std::string r = compare_values(got[i], expected[i], rtol, atol); !r.empty())
        fail(ErrorCode::numeric, cat("output '", g.output_name(i), "' ", r), set.filename().string());
  }
  if (sets == 0) {
    c.status = Case::Status::skipped;
    c.reason = "it has no test_data_set_0";
  }
}

int run(const Options& o, const Globals& globals) {
  if (o.path != "reference" && o.path != "optimised")
    throw Misuse{cat("--path is '", o.path, "'"), "use reference or optimised"};
  device::Target target = globals.target();
  std::vector<Case> cases;
  for (const std::string& folder : o.folders) find_cases(folder, cases);
  if (cases.empty()) fail(ErrorCode::not_found, "no folder with a model.onnx was found", o.folders[0]);
  int64_t counts[3] = {0, 0, 0};
  {
    Progress progress("conform", static_cast<int64_t>(cases.size()));
    for (Case& c : cases) {
      throw_if_interrupted();
      try {
        run_case(c, o, target);
      } catch (const std::exception& e) {
        c.status = Case::Status::failed;
        c.reason = e.what();
      }
      ++counts[static_cast<int>(c.status)];
      progress.add();
      std::string name = c.folder.filename().string();
      if (globals.json) {
        const char* status[] = {"passed", "failed", "skipped"};
        nlohmann::json ran = nlohmann::json::array();
        for (const auto& [node, implementation] : c.ran)
          ran.push_back({{"node", node}, {"implementation", implementation}});
        print_line(nlohmann::json{
            {"case", name},
            {"status", status[static_cast<int>(c.status)]},
            {"reason", c.reason},
            {"ran",
             ran}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      } else if (c.status != Case::Status::passed) {
        print_line(cat(c.status == Case::Status::failed ? "FAILED  " : "skipped ", name, ": ", c.reason));
      }
    }
  }
  if (globals.json)
    print_line(
        nlohmann::json{{"final", true}, {"passed", counts[0]}, {"failed", counts[1]}, {"skipped", counts[2]}}
            .dump());
  else
    print_line(cat(counts[0], " passed, ", counts[1], " failed, ", counts[2], " skipped"));
  return counts[1] ? 1 : 0;
}

}  // namespace

Run make_conform(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<Options>();
  app.add_option("folders", o->folders, "a test folder, or folders of them")->required()->type_name("DIR...");
  app.add_option("--path", o->path, "optimised, or reference: the interpreter on the graph as imported")
      ->capture_default_str();
  app.add_option("--rtol", o->rtol, "relative tolerance")->capture_default_str();
  app.add_option("--atol", o->atol, "absolute tolerance")->capture_default_str();
  return [o, &globals] { return run(*o, globals); };
}

}  // namespace pelton::cli
