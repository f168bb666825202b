// SPDX-License-Identifier: Apache-2.0
// pelton verify: the plan against the reference interpreter. Never changes the plan it verifies.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/run_model.h"
#include "cli/verifier.h"
#include "register/registry.h"

namespace pelton::cli {
namespace {

using ir::HostValue;
using nlohmann::json;

struct Options {
  std::string model, precision = "fp32";
  std::vector<std::string> inputs, shapes;
  std::optional<double> alone, cumulative;  // by precision
  uint64_t seed = 0;
  bool all = false;
};

json to_json(const std::vector<VerifyRow>& rows, const char* key) {
  json out = json::array();
  for (const VerifyRow& r : rows) {
    json j = {{key, r.what},
              {"implementation", r.implementation},
              {"max_abs_error", r.error.abs},
              {"max_rel_error", r.error.rel},
              {"ok", r.ok}};
    if (!r.error.broken.empty()) j["reason"] = r.error.broken;
    out.push_back(std::move(j));
  }
  return out;
}

void print_rows(const std::vector<VerifyRow>& rows, const char* title, const char* key, bool all) {
  print_line(title);
  Table table({key, "implementation", "max abs error", "max rel error", ""},
              {false, false, true, true, false});
  size_t shown = 0;
  for (const VerifyRow& r : rows)
    if (all || !r.ok || shown < 40) {
      ++shown;
      table.row({r.what, r.implementation, cat(r.error.abs), cat(r.error.rel),
                 r.ok ? std::string("ok") : cat("DIFFERS ", r.error.broken)});
    }
  table.print();
  if (shown < rows.size()) print_line(cat(rows.size() - shown, " more are ok; --all shows them"));
  print_line("");
}

int run(const Options& o, const Globals& globals) {
  if (o.alone) require_amount(*o.alone, "--rtol-alone");
  if (o.cumulative) require_amount(*o.cumulative, "--rtol");
  bool low = o.precision != "fp32";
  CompileOptions options = compile_options(o.shapes, o.precision);
  device::Target target = globals.target();
  std::shared_ptr<const runtime::Plan> plan;
  std::unique_ptr<ir::Graph> source;
  if (is_plan_file(o.model)) {
    plan = plan_of(o.model, target, options);
    low = plan->precision != "fp32";
  } else {
    Model model = model_of(o.model, options);
    source = std::make_unique<ir::Graph>(model.graph);
    plan = std::make_shared<runtime::Plan>(compile_model(std::move(model), target, options));
  }
  const double alone = o.alone.value_or(low ? 0.02 : 1e-4);
  const double cumulative = o.cumulative.value_or(low ? 0.08 : 1e-3);
  const double levels = o.cumulative.value_or(0.08);
  auto executable = runtime::Executable::create(plan, registry(), target);
  const ir::Graph& g = executable->graph();
  std::vector<HostValue> inputs =
      o.inputs.empty()
          ? random_inputs(g, choose_dims(g, pairs(o.shapes, "--shape"), 0, plan->optimum), o.seed)
          : load_inputs(g, pairs(o.inputs, "--input"));
  const VerifyReport v = verify_plan(*executable, source.get(), inputs, {alone, cumulative, levels});
  int64_t wrong = 0;
  for (const auto* rows : {&v.groups, &v.values})
    for (const VerifyRow& r : *rows) wrong += !r.ok;
  if (globals.json) {
    json fused = json::array();
    for (const auto& [value, group] : v.fused) fused.push_back({{"value", value}, {"group", group}});
    print_json(
        {{"alone", to_json(v.groups, "node")},
         {"cumulative", to_json(v.values, "value")},
         {"fused", fused},
         {"tolerance", {{"alone", alone}, {"cumulative", cumulative}, {"behind_quantisation", levels}}},
         {"matches", wrong == 0},
         {"reference", source ? "source model" : "the plan's own graph"}});
    return wrong ? 1 : 0;
  }
  print_rows(v.groups, "each kernel alone, on the reference's inputs", "node", o.all);
  print_rows(v.values,
             source ? "cumulative, against the source model" : "cumulative, against the plan's own graph",
             "value", o.all);
  if (!v.fused.empty()) {
    Table table({"value without a place of its own", "inside"});
    for (const auto& [value, group] : v.fused) table.row({value, group});
    table.print();
  }
  print_line(cat(v.groups.size(), " kernels and ", v.values.size(), " values compared, ", wrong,
                 " differ (tolerance ", alone, " alone, ", cumulative, " cumulative, ", levels,
                 " behind a quantisation, of the largest reference value)"));
  return wrong ? 1 : 0;
}

}  // namespace

Run make_verify(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<Options>();
  app.add_option("model", o->model, "model or plan")->required()->type_name("MODEL_OR_PLAN");
  app.add_option("--input", o->inputs, "value of an input; without any, random ones")
      ->type_name("NAME=FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--shape", o->shapes, "shape of an input")
      ->type_name("NAME=AxBxC")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--precision", o->precision, "when compiling a model")->capture_default_str();
  app.add_option("--rtol-alone", o->alone, "largest error of one kernel (default 1e-4, below fp32 0.02)");
  app.add_option(
      "--rtol", o->cumulative,
      "largest error of a value of the run (default 1e-3; below fp32 and behind a quantisation 0.08)");
  app.add_option("--seed", o->seed, "of random inputs")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_flag("--all", o->all, "show every row");
  return [o, &globals] { return run(*o, globals); };
}

}  // namespace pelton::cli
