// SPDX-License-Identifier: Apache-2.0
// pelton run: one run on given inputs; results to files, compared with expected ones, traced.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/file.h"
#include "base/trace.h"
#include "cli/command.h"
#include "cli/compare.h"
#include "cli/inputs.h"
#include "cli/preprocess.h"
#include "cli/results.h"
#include "cli/run_model.h"
#include "ir/op.h"
#include "register/registry.h"
#include "register/retuner.h"
#include "runtime/executable.h"
#include "tensor/npy.h"

namespace pelton::cli {
namespace {

struct Options {
  std::string model, output_dir, compare_dir, trace;
  std::vector<std::string> inputs, shapes, images;
  std::string precision = "fp32";
  double rtol = 1e-3, atol = 1e-5;
  uint64_t seed = 0;
};

// Spans of nodes; what ran where is an argument of each.
void add_span(TraceBuffer& buffer, const runtime::StepEvent& e) {
  std::vector<TraceArg> args = {{"implementation", std::string(e.implementation)}};
  for (size_t i = 0; i < e.outputs.size(); ++i)
    if (e.outputs[i].tensor.defined()) args.emplace_back(cat("result ", i), e.outputs[i].tensor.str());
  buffer.add({e.graph.describe(e.node), std::string(e.graph.op(e.node).name), e.start_ns,
              e.end_ns - e.start_ns, buffer.track(e.depth ? cat("sub-graph ", e.depth) : std::string("plan")),
              std::move(args)});
}

// Inputs by name that are not read as they are: pictures, through the plan's preprocessing.
std::map<std::string, ir::HostValue> pictures(const std::string& path, const device::Target& target,
                                              const std::vector<std::string>& images,
                                              std::map<std::string, std::string>& files) {
  const auto input = open_pictures(path, target);
  if (!input) {
    if (images.empty()) return {};
    fail(ErrorCode::usage, "the model takes tensors, not pictures", "--image",
         "compile it with --preprocess PIPELINE.toml and run the plan");
  }
  const auto pixels = files.find(input->name());
  if (!images.empty()) {
    if (pixels != files.end())
      fail(ErrorCode::usage, cat("input '", input->name(), "' has two values"), "--image",
           "give --image or --input, not both");
    std::vector<std::string> bytes;
    constexpr uint64_t kMaxPictureBytes = uint64_t{1} << 30;
    for (const std::string& image : images) bytes.push_back(read_file(image, kMaxPictureBytes));
    return {{input->name(), input->from_files({bytes.begin(), bytes.end()})}};
  }
  if (pixels == files.end() || !pixels->second.ends_with(".npy")) return {};
  Tensor t = load_npy(pixels->second);
  if (t.dtype() != DType::u8 || (input->dtype() == DType::u8)) return {};
  files.erase(pixels);
  return {{input->name(), input->from_pixels(t)}};
}

void make_folder(const std::filesystem::path& path) {
  std::error_code ec;
  std::filesystem::create_directories(path, ec);
  if (ec) fail_errno(ec.value(), "create", path.string());
}

int run(const Options& o, const Globals& globals) {
  require_amount(o.rtol, "--rtol");
  require_amount(o.atol, "--atol");
  device::Target target = globals.target();
  CompileOptions compile = compile_options(o.shapes, o.precision);
  compile.only_runs = true;
  auto plan = plan_of(o.model, target, compile);
  // One run does not wait for timings, it takes those there are.
  auto executable =
      runtime::Executable::create(plan, registry(), target, {.retuner = &retuner(), .retune = false});
  const ir::Graph& g = executable->graph();
  std::map<std::string, std::string> files = pairs(o.inputs, "--input");
  const std::map<std::string, ir::HostValue> prepared = pictures(o.model, target, o.images, files);
  std::vector<ir::HostValue> inputs = load_inputs(g, files, prepared);
  require_dims(g, inputs, pairs(o.shapes, "--shape"));

  TraceBuffer trace;
  runtime::RunOptions options;
  options.random.seed = o.seed;
  nlohmann::json ran = nlohmann::json::array();
  if (!o.trace.empty())
    options.observe = [&](const runtime::StepEvent& e) {
      add_span(trace, e);
      ran.push_back({{"node", e.graph.describe(e.node)},
                     {"op", std::string(e.graph.op(e.node).name)},
                     {"implementation", std::string(e.implementation)},
                     {"depth", e.depth},
                     {"ms", static_cast<double>(e.end_ns - e.start_ns) * 1e-6}});
    };
  if (!o.output_dir.empty()) make_folder(o.output_dir);
  Stopwatch watch;
  std::vector<ir::HostValue> outputs;
  try {
    outputs = executable->run(inputs, options);
  } catch (const Error& e) {
    // What the model was compiled for with open sizes may hold for some of them alone.
    if (e.code() != ErrorCode::bad_shape || !e.message().starts_with("sizes must satisfy") ||
        !o.shapes.empty())
      throw;
    fail(e.code(), e.message(), e.where(),
         "if the model allows these sizes, compile or run it for them alone: --shape NAME=AxBxC");
  }
  double ms = watch.seconds() * 1e3;
  if (!o.trace.empty()) trace.write(o.trace);

  const std::vector<ResultTensor> tensors = result_tensors(g, outputs);
  nlohmann::json results = nlohmann::json::array();
  bool all_match = true;
  for (const ResultTensor& result : tensors) {
    const Tensor& t = result.tensor;
    nlohmann::json r = {{"name", result.name}, {"type", result.type}};
    r["shape"] = t.dims();
    if (!o.output_dir.empty()) {
      std::string path = cat(o.output_dir, "/", result.file, ".npy");
      make_folder(std::filesystem::path(path).parent_path());
      save_npy(path, t);
      r["file"] = path;
    }
    if (!o.compare_dir.empty()) {
      Tensor expected = load_npy(cat(o.compare_dir, "/", result.file, ".npy"), t.dtype());
      Difference d = compare(t, expected, o.rtol, o.atol);
      all_match &= d.matches();
      r["matches"] = d.matches();
      r["max_abs_error"] = d.max_abs;
      r["max_rel_error"] = d.max_rel;
      if (!d.matches()) r["reason"] = d.reason;
    }
    results.push_back(std::move(r));
  }
  if (globals.json) {
    nlohmann::json out = {{"outputs", results},
                          {"ms", ms},
                          {"device", executable->target().name},
                          {"precision", plan->precision}};
    if (!o.trace.empty()) out["ran"] = ran;
    if (!o.compare_dir.empty()) out["matches"] = all_match;
    print_json(out);
  } else {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const nlohmann::json& r = results[i];
      std::string line = cat(tensors[i].name, "  ", tensors[i].tensor.str());
      if (r.contains("file")) append(line, cat("  -> ", r["file"].get<std::string>()));
      if (r.contains("matches"))
        append(line, r["matches"].get<bool>() ? std::string("  matches")
                                              : cat("  DIFFERS: ", r["reason"].get<std::string>()));
      print_line(line);
    }
  }
  return all_match ? 0 : 1;
}

}  // namespace

Run make_run(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<Options>();
  app.add_option("model", o->model, "model or plan")->required()->type_name("MODEL_OR_PLAN");
  app.add_option("--input", o->inputs, "value of an input, repeated")
      ->type_name("NAME=FILE")
      ->take_all()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--image", o->images, "picture for a plan compiled with --preprocess; repeated: a batch")
      ->type_name("FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--output-dir", o->output_dir,
                 "write each output there as NAME.npy, a sequence as NAME/0.npy, NAME/1.npy, ...")
      ->type_name("DIR");
  CLI::Option* compared =
      app.add_option("--compare", o->compare_dir,
                     "compare each output with NAME.npy there; exit status 1 if one differs")
          ->type_name("DIR");
  app.add_option("--rtol", o->rtol, "relative tolerance of --compare")
      ->needs(compared)
      ->capture_default_str();
  app.add_option("--atol", o->atol, "absolute tolerance of --compare")
      ->needs(compared)
      ->capture_default_str();
  app.add_option("--shape", o->shapes, "shape of an input, where the model leaves it open")
      ->type_name("NAME=AxBxC")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--precision", o->precision, "when compiling a model")->capture_default_str();
  app.add_option("--seed", o->seed, "of random ops")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--trace", o->trace, "write what ran, when and on which implementation, as Chrome trace")
      ->type_name("FILE.json");
  return [o, &globals] { return run(*o, globals); };
}

}  // namespace pelton::cli
