// SPDX-License-Identifier: Apache-2.0
// pelton compile: model to plan file.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/preprocess.h"
#include "cli/run_model.h"
#include "compiler/best.h"
#include "compiler/timing.h"
#include "device/timing_budget.h"
#include "register/artifacts.h"
#include "register/registry.h"
#include "register/tuning.h"
#include "runtime/executable.h"
#include "runtime/plan_file.h"

namespace pelton::cli {
namespace {

constexpr double kNoLimitSeconds = 1e9;

struct Options {
  std::string model, output = "model.pelton", precision = "fp32", target, preprocess;
  std::string time_budget, tactics, calibrate, calibration = "percentile";
  std::optional<double> max_drop;
  bool embed_packed = false, strict = false, deterministic = false, frozen = false;
  std::vector<std::string> shapes, disabled, print_after;
};

// "60", "60s", "2m" or "500ms" in seconds.
double seconds_of(const std::string& text) {
  if (text.empty()) return 0;
  size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  const std::string unit = text.substr(end);
  const double scale = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "ms" ? 1e-3 : -1;
  if (end == 0 || scale < 0 || !(value >= 0) || value * scale > 86400)
    throw Misuse{cat("--time-budget '", text, "' is no time"), "write it as 60s, 2m or 500ms"};
  return value * scale;
}

// The plan's weights as the kernels of this machine order them, at the sizes that the plan is best at.
std::vector<runtime::Packed> packed_weights(const runtime::Plan& plan, const device::Target& target) {
  runtime::PackedWeights& store = runtime::PackedWeights::instance();
  store.record();
  auto executable =
      runtime::Executable::create(std::make_shared<const runtime::Plan>(plan), registry(), target);
  const SymbolValues sizes = compiler::sizes_of(plan.graph, plan.optimum);
  std::vector<Dims> dims;
  for (ir::ValueId v : plan.graph.inputs) dims.push_back(eval(plan.graph.type(v).shape, sizes));
  executable->prepare(dims);
  std::vector<runtime::Packed> packed = store.take();
  const std::set<const void*> read = executable->plain_reads();
  for (runtime::Packed& p : packed) p.alone = !read.count(p.source.data());
  return packed;
}

// Nodes by implementation, those of sub-graphs among them, as `inspect --support` lists them.
void count_implementations(const std::vector<runtime::Choice>& choices,
                           std::map<std::string, int64_t>& into) {
  for (const runtime::Choice& c : choices) {
    if (c.implementation != runtime::kNothing) ++into[c.implementation];
    for (const runtime::BodyChoices& body : c.bodies) count_implementations(body.choices, into);
  }
}

int run(const Options& o, const Globals& globals) {
  if (o.embed_packed && (!o.target.empty() || globals.target().kind != device::Kind::cpu))
    throw Misuse{"--embed-packed orders weights for the CPU of this machine",
                 "leave out --target and --device"};
  if (o.max_drop && !(*o.max_drop >= 0 && *o.max_drop <= 100))
    throw Misuse{cat("--max-drop is ", *o.max_drop), "give percent, from 0 to 100"};
  if (o.precision == "fp32" && (o.max_drop || !o.calibrate.empty()))
    throw Misuse{cat(o.max_drop ? "--max-drop" : "--calibrate", " is for precisions below f32"),
                 "add --precision int8, bf16 or fp16"};
  if (o.precision == "int8" && o.calibrate.empty())
    throw Misuse{"int8 needs samples to find the ranges of values", "name a folder of them with --calibrate"};
  require_output(o.output, o.model);
  device::Target target = o.target.empty() ? globals.target() : device::parse_target(o.target);
  CompileOptions options = compile_options(o.shapes, o.precision);
  options.strict = o.strict;
  options.deterministic = o.deterministic;
  options.frozen = o.frozen;
  options.disabled = o.disabled;
  options.print_after = o.print_after;
  options.hash_source = true;
  TuningOptions tuning;
  tuning.time_budget_seconds = seconds_of(o.time_budget);
  tuning.tactics_file = o.tactics;
  tuning.calibrate_folder = o.calibrate;
  tuning.calibration = o.calibration;
  if (o.max_drop) tuning.max_drop = *o.max_drop;
  options.print = [](std::string_view pass, const std::string& text) {
    std::fprintf(stderr, "after %s:\n%s\n", std::string(pass).c_str(), text.c_str());
  };
  Stopwatch watch;
  std::optional<device::TimingBudget> budget;
  // The GPU is made ready beside the rest. What keeps it from that is said where it is used.
  std::future<std::shared_ptr<device::Device>> gpu;
  if (target.kind == device::Kind::cuda && target.multiprocessors > 0)
    gpu = std::async(std::launch::async, [&target] { return registry().open(target); });
  // Without a limit it still ends at an interrupt.
  if (target.kind == device::Kind::cuda)
    budget.emplace(tuning.time_budget_seconds > 0 ? tuning.time_budget_seconds : kNoLimitSeconds);
  // An interrupt ends the timing, not the compilation: the plan has the best that is known by then.
  options.finishes = tuning.time_budget_seconds > 0 || compiler::is_choice_of_precisions(o.precision);
  Model model = model_of(o.model, options);
  const std::shared_future<std::string> digest = model.sha256;
  runtime::Plan plan = compile_model(std::move(model), target, options, tuning);
  const ArtifactReport artifacts = make_artifacts(plan, target);
  options.finishes |= artifacts.timed;
  std::shared_ptr<const runtime::Preprocess> preprocess;
  if (!o.preprocess.empty()) preprocess = compile_preprocess(plan.graph, o.preprocess, target, options);
  std::vector<runtime::Packed> packed;
  if (o.embed_packed) packed = packed_weights(plan, target);
  if (!options.finishes) throw_if_interrupted();
  if (digest.valid()) plan.source_sha256 = digest.get();
  runtime::save_plan(plan, o.output, preprocess.get(), packed);
  double seconds = watch.seconds();
  std::map<std::string, int64_t> ran;
  count_implementations(plan.choices, ran);
  if (preprocess) count_implementations(preprocess->plan->choices, ran);
  const auto slow = ran.find(std::string(runtime::kReference));
  const int64_t reference = slow == ran.end() ? 0 : slow->second;
  uint64_t bytes = file_size_bytes(o.output);
  const int status = interrupted() ? 128 + interrupt_signal() : 0;
  if (globals.json) {
    nlohmann::json passes = nlohmann::json::array();
    for (const runtime::PassReport& p : plan.passes)
      passes.push_back(
          {{"name", p.name}, {"changes", p.changes}, {"ms", p.seconds * 1e3}, {"notes", p.notes}});
    nlohmann::json out = {{"plan", o.output},
                          {"bytes", bytes},
                          {"compile_ms", seconds * 1e3},
                          {"precision", plan.precision},
                          {"target", plan.target.name},
                          {"implementations", ran},
                          {"reference_nodes", reference},
                          {"passes", passes}};
    if (target.kind == device::Kind::cuda)
      out["artifacts"] = {{"kernels", artifacts.kernels},
                          {"most_kernels", ArtifactReport::kMostKernels},
                          {"library_plans", artifacts.library_plans},
                          {"choices", artifacts.choices},
                          {"timed", artifacts.timed},
                          {"left_out", budget ? budget->left_out() : 0}};
    if (status) out["interrupted"] = true;
    if (preprocess) out["preprocess"] = {{"name", preprocess->name}, {"input", preprocess->input}};
    print_json(out);
    return status;
  }
  print_line(cat("wrote ", o.output, ": ", bytes_text(static_cast<double>(bytes)), ", ", plan.precision,
                 " for ", plan.target.name, ", in ", fixed(seconds, 2), " s"));
  if (target.kind == device::Kind::cuda) {
    if (!artifacts.left.empty())
      print_line(cat("kernels are compiled when it is loaded: ", artifacts.left));
    else
      print_line(cat("compiled kernels held: ", artifacts.kernels,
                     artifacts.kernels > ArtifactReport::kMostKernels
                         ? cat(", more than the ", ArtifactReport::kMostKernels,
                               " that a model should need, since what they do depends on their sizes: they "
                               "take longer to compile and to load")
                         : ""));
    if (artifacts.library_plans > 0) print_line(cat("plans of cuDNN held: ", artifacts.library_plans));
    print_line(artifacts.timed ? cat("holds ", artifacts.choices, " choices timed on ", target.product)
                               : std::string("choices that need timing are made when it is loaded on a GPU"));
    if (budget && budget->left_out())
      print_line(cat(budget->left_out(), " choices were not timed: the time was up"));
  }
  if (preprocess)
    print_line(cat("input '", preprocess->input, "' takes pictures, prepared by ", preprocess->name));
  Table table({"implementation", "nodes"}, {false, true});
  for (const auto& [name, count] : ran) table.row({name, cat(count)});
  table.print();
  for (const runtime::PassReport& p : plan.passes)
    for (const std::string& note : p.notes) print_line(cat(p.name, ": ", note));
  if (reference)
    print_line(cat(reference, " nodes run on the reference path, which is slow: pelton inspect --support ",
                   o.output, " says why"));
  return status;
}

}  // namespace

Run make_compile(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<Options>();
  app.add_option("model", o->model, "ONNX file, IR text file, folder of a training run or zoo:NAME")
      ->required()
      ->type_name("MODEL");
  app.add_option("-o,--output", o->output, "plan file to write")
      ->capture_default_str()
      ->type_name("X.pelton");
  app.add_option("--precision", o->precision,
                 "fp32, bf16, fp16, int8; tf32 on a GPU; best, or several with commas: the fastest of "
                 "them, by timing, in each segment of the model")
      ->capture_default_str();
  app.add_option(
         "--calibrate", o->calibrate,
         "folder of samples: NAME.npy for a model of one input, archives .npz or folders of NAME.npy by "
         "input name")
      ->type_name("DIR");
  app.add_option("--calibration", o->calibration, "how ranges are chosen: minmax, percentile or entropy")
      ->capture_default_str();
  app.add_option(
         "--max-drop", o->max_drop,
         "percent that the result may lose against f32 on the samples: of the rows whose largest entry "
         "moves, or of the values")
      ->type_name("P");
  app.add_option(
         "--time-budget", o->time_budget,
         "time on this machine what may be done in several ways, for at most this long (60s, 2m); what "
         "was timed before is not timed again")
      ->type_name("TIME");
  app.add_option("--tactics", o->tactics,
                 "file of timings to take choices from and to add to, instead of the one in the cache folder")
      ->type_name("FILE");
  app.add_option("--shape", o->shapes, "shape of an input; a size that may vary is min:opt:max")
      ->type_name("NAME=AxBxC")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--embed-packed", o->embed_packed,
               "store weights in the order of this machine's kernels, and in the model's own only what else "
               "reads it: the "
               "file loads faster");
  app.add_flag("--strict", o->strict,
               "round f16 and bf16 values inside fused groups as if every op ran alone (slower)");
  app.add_flag("--deterministic", o->deterministic,
               "choose nothing by timing, so that every process on such a machine gives the same bits");
  app.add_flag("--frozen", o->frozen, "weights of the plan cannot be replaced (refit refuses)");
  app.add_option("--preprocess", o->preprocess,
                 "pipeline whose evaluation form makes the input from pictures (files or pixels)")
      ->type_name("[INPUT=]PIPELINE.toml");
  app.add_option("--target", o->target, "machine to compile for, present or not: cpu, cpu-avx2, ..., sm_90")
      ->type_name("T");
  app.add_option("--disable-pass", o->disabled, "leave a pass out, to find a fault by bisection")
      ->type_name("PASS")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--print-after", o->print_after,
                 "print the graph after a pass (import, fusion, ...) on standard error")
      ->type_name("PASS")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return [o, &globals] {
    try {
      return run(*o, globals);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::cancelled) throw;
      fail(e.code(), cat(e.message(), "; ", o->output, " is not written"), e.where());
    }
  };
}

}  // namespace pelton::cli
