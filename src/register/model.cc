// SPDX-License-Identifier: Apache-2.0
#include "register/model.h"

#include <filesystem>
#include <optional>

#include "base/cache_folder.h"
#include "base/file.h"
#include "base/function_ref.h"
#include "base/hash.h"
#include "base/log.h"
#include "compiler/best.h"
#include "compiler/measured.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "onnx/import/import.h"
#include "register/registry.h"
#include "register/samples.h"
#include "register/tuning.h"
#include "runtime/plan_file.h"

namespace pelton {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 28;

std::string first_bytes(const std::string& path, size_t count) {
  MappedFile file(path);
  auto bytes = file.bytes().first(std::min(count, file.bytes().size()));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Sizes that the user fixes are known while the model is read; those that may vary get their range after it.
onnx::ImportOptions import_options(const CompileOptions& options) {
  onnx::ImportOptions out;
  for (const auto& [name, text] : options.shapes) {
    onnx::InputSizes& sizes = out.fixed_sizes[name];
    for (const passes::DimRange& d :
         with_place(cat("--shape ", name), [&] { return passes::parse_shape(text); }))
      sizes.push_back(d.min == d.max ? std::optional(d.min) : std::nullopt);
  }
  return out;
}

// A plan has its shapes already: those asked for must be among them.
void require_shapes(const ir::Graph& g, const CompileOptions& options) {
  for (const auto& [name, text] : options.shapes) {
    const std::string where = cat("--shape ", name);
    const auto dims = with_place(where, [&] { return passes::parse_shape(text); });
    std::string names;
    const ir::Type* type = nullptr;
    for (ir::ValueId v : g.inputs) {
      if (g[v].name == name) type = &g.type(v);
      append(names, cat(names.empty() ? "" : ", ", g[v].name));
    }
    if (!type)
      fail(ErrorCode::bad_name, cat("the plan has no input '", name, "'"), where,
           cat("its inputs are ", names));
    bool fits = type->is_tensor() && type->shape.size() == dims.size();
    std::string ranges;  // of the sizes that may vary
    for (size_t i = 0; fits && i < dims.size(); ++i) {
      const Range range = type->shape[i].range(g.symbols->ranges);
      fits = dims[i].min >= range.min && dims[i].max <= range.max;
      if (!fits && !type->shape[i].is_const())
        ranges = cat(", ", type->shape[i].str(), " in the range ", range.min, " to ", range.max);
    }
    if (!fits)
      fail(ErrorCode::bad_shape, cat("the plan was compiled for ", type->str(), ranges, ", not for ", text),
           where, "compile the model with this shape");
  }
}

}  // namespace

FileKind kind_of_file(const std::string& path) {
  std::string head = first_bytes(path, 256);
  if (head.empty()) fail(ErrorCode::bad_format, "the file is empty", path);
  if (runtime::is_plan(head)) return FileKind::plan;
  if (head.rfind("version https://git-lfs", 0) == 0)
    fail(ErrorCode::bad_format, "the file is a Git LFS pointer, not the model itself", path,
         "run git lfs pull");
  size_t at = head.find_first_not_of(" \t\r\n");
  if (at != head.npos && head.compare(at, 6, "graph ") == 0) return FileKind::ir_text;
  return FileKind::onnx;
}

Model load_model(const std::string& path, const CompileOptions& options) {
  Model model;
  model.name = std::filesystem::path(path).filename().string();
  if (options.hash_source)
    model.sha256 =
        std::async(std::launch::async, [path] { return sha256(MappedFile(path).bytes()).str(); }).share();
  switch (kind_of_file(path)) {
    case FileKind::plan:
      fail(ErrorCode::usage, "the file is a plan, not a model", path);
    case FileKind::ir_text:
      model.format = "ir";
      with_place(path, [&] {
        model.graph = ir::parse_graph(read_file(path, kMaxTextBytes));
        ir::verify(model.graph, "import");
      });
      break;
    case FileKind::onnx: {
      model.format = "onnx";
      onnx::Imported imported = onnx::import_file(path, import_options(options));
      model.graph = std::move(imported.graph);
      model.opsets = std::move(imported.opsets);
      model.producer = std::move(imported.producer);
      break;
    }
  }
  return model;
}

std::string timings_file(std::string* why) {
  std::string unused;
  const std::string folder = cache_folder("tactics", why ? *why : unused);
  return folder.empty() ? folder : folder + "timings.txt";
}

namespace {

// Timings that are read, used and written. What is wrong with the file in the cache folder costs its timings,
// not the plan; a file that the user named is an error.
class TimingsFile {
 public:
  explicit TimingsFile(const std::string& named) : path_(named), cached_(named.empty()) {
    if (cached_) {
      std::string why;
      path_ = timings_file(&why);
      if (path_.empty())
        fail(ErrorCode::usage, cat("there is no cache folder for timings: ", why), "--time-budget",
             "name a file with --tactics");
    } else if (!file_exists(path_)) {
      const AtomicFile probe(path_);  // before the work
    }
    unless_cached([&] { tactics = compiler::Tactics::load(path_); });
  }
  void save() {
    if (tactics.changed()) unless_cached([&] { tactics.save(path_); });
  }

  compiler::Tactics tactics;

 private:
  void unless_cached(FunctionRef<void()> step) const {
    try {
      step();
    } catch (const Error& e) {
      if (!cached_) throw;
      log_warn("timings are not kept: ", e.what());
    }
  }

  std::string path_;
  bool cached_;
};

}  // namespace

runtime::Plan compile_model(Model model, const device::Target& target, const CompileOptions& options) {
  return compile_model(std::move(model), target, options, {});
}

runtime::Plan compile_model(Model model, const device::Target& target, const CompileOptions& options,
                            const TuningOptions& tuning) {
  if (target.kind != device::Kind::cpu && registry().candidates("fused", target.kind).empty())
    fail(ErrorCode::no_device, cat("this build compiles nothing for ", target.name), "",
         "use a build with the CUDA back end, or --target cpu");
  compiler::Options o;
  for (const auto& [name, text] : options.shapes)
    o.shapes[name] = with_place(cat("--shape ", name), [&] { return passes::parse_shape(text); });
  o.precision = options.precision;
  o.strict = options.strict;
  o.finishes = options.finishes;
  o.disabled.insert(options.disabled.begin(), options.disabled.end());
  o.print_after.insert(options.print_after.begin(), options.print_after.end());
  o.print = options.print;
  if (options.deterministic && tuning.time_budget_seconds > 0)
    fail(ErrorCode::usage, "--deterministic leaves nothing to a timing", "--time-budget",
         "time without --deterministic, then name the file of timings with --tactics");
  if (options.deterministic && compiler::is_choice_of_precisions(options.precision))
    fail(ErrorCode::usage, "--deterministic leaves nothing to a timing",
         cat("--precision ", options.precision), "name one precision");
  compiler::Measured measured;
  measured.quantize.method = compiler::calibration_from_name(tuning.calibration);
  measured.quantize.max_drop = tuning.max_drop;
  if (!tuning.calibrate_folder.empty())
    measured.quantize.samples = load_samples(tuning.calibrate_folder, model.graph);
  std::optional<TimingsFile> timings;
  if (tuning.time_budget_seconds > 0 || !tuning.tactics_file.empty()) {
    timings.emplace(tuning.tactics_file);
    measured.tactics = &timings->tactics;
    measured.time_budget_seconds = tuning.time_budget_seconds;
  }
  runtime::Plan plan = compiler::compile(std::move(model.graph), target, o, registry(), measured);
  if (timings) timings->save();
  plan.source = model.name;
  for (const auto& [name, text] : options.shapes) plan.options[cat("shape ", name)] = text;
  if (!measured.quantize.samples.empty())
    plan.options["calibrate"] = cat(measured.quantize.samples.size(), " samples, ", tuning.calibration);
  if (options.strict) plan.options["strict"] = "true";
  if (options.deterministic) plan.options[std::string(runtime::kDeterministic)] = "true";
  if (options.frozen) plan.options[std::string(runtime::kFrozen)] = "true";
  std::string disabled;
  for (const std::string& pass : o.disabled) append(disabled, cat(disabled.empty() ? "" : ",", pass));
  if (!disabled.empty()) plan.options["disable-pass"] = disabled;
  return plan;
}

std::shared_ptr<const runtime::Plan> open_plan(const std::string& path, const device::Target& target,
                                               const CompileOptions& options) {
  if (kind_of_file(path) == FileKind::plan) {
    std::shared_ptr<const runtime::Plan> plan =
        runtime::load_plan(path, {.trusted = options.trusted, .late = options.only_runs});
    if (options.precision != CompileOptions().precision && options.precision != plan->precision)
      fail(ErrorCode::usage,
           cat("the plan was compiled in ", plan->precision, ", not in ", options.precision), path,
           cat("compile the model with precision ", options.precision));
    with_place(path, [&] { require_shapes(plan->graph, options); });
    return plan;
  }
  return std::make_shared<runtime::Plan>(compile_model(load_model(path, options), target, options));
}

}  // namespace pelton
