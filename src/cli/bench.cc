// SPDX-License-Identifier: Apache-2.0
// pelton bench: latency, throughput, memory and, with --layers, the time of every node.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/energy.h"
#include "cli/inputs.h"
#include "cli/layer_times.h"
#include "cli/process_memory.h"
#include "cli/run_model.h"
#include "cli/statistics.h"
#include "register/registry.h"
#include "register/retuner.h"
#include "runtime/executable.h"

namespace pelton::cli {
namespace {

struct Options {
  std::string model, precision = "fp32";
  std::vector<std::string> shapes, inputs;
  std::optional<int64_t> batch;
  double seconds = 3;
  std::optional<int64_t> iterations;
  double warm_up_seconds = 0.3;
  uint64_t seed = 0;
  bool layers = false, device_buffers = false;
};

// A context with everything bound, so that a measured run is the run and nothing else.
class Bound {
 public:
  Bound(const runtime::Executable& e, std::vector<ir::HostValue> inputs, bool device_buffers)
      : context_(e.context()), inputs_(std::move(inputs)) {
    const ir::Graph& g = e.graph();
    if (device_buffers) {
      bind_on_device(e);
      return;
    }
    for (size_t i = 0; i < inputs_.size(); ++i)
      context_.bind_input(i, inputs_[i].tensor.dims(), inputs_[i].tensor.data());
    for (ir::ValueId v : g.outputs) bindable_ &= g.type(v).is_tensor() && g.type(v).dtype != DType::string;
    if (!bindable_) return;
    try {
      std::vector<Dims> dims = context_.output_dims();
      for (size_t i = 0; i < dims.size(); ++i) {
        outputs_.emplace_back(g.type(g.outputs[i]).dtype, dims[i]);
        context_.bind_output(i, outputs_[i].mutable_data(), outputs_[i].bytes());
      }
    } catch (const Error&) {
      bindable_ = false;  // a size that depends on data
    }
  }
  void run(const runtime::RunOptions& options = {}) {
    context_.run_bound(options);
    if (!bindable_) context_.outputs();
  }

 private:
  void bind_on_device(const runtime::Executable& e) {
    if (!e.device())
      throw Misuse{"--device-buffers needs a device with memory of its own", "add --device cuda"};
    const ir::Graph& g = e.graph();
    std::shared_ptr<device::Device> device = registry().open(e.target());
    std::unique_ptr<device::Stream> stream = device->make_stream();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Tensor& t = inputs_[i].tensor;
      memory_.emplace_back(device, t.bytes(), "an input of the benchmark");
      stream->upload(memory_.back().get(), t.data(), t.bytes());
      context_.bind_device_input(i, t.dims(), memory_.back().get());
    }
    stream->synchronize();
    std::vector<Dims> dims = context_.output_dims();
    for (size_t i = 0; i < dims.size(); ++i) {
      int64_t bytes = byte_size(g.type(g.outputs[i]).dtype, element_count(dims[i]));
      memory_.emplace_back(device, bytes, "a result of the benchmark");
      context_.bind_device_output(i, memory_.back().get(), bytes);
    }
  }

  std::vector<device::Memory> memory_;  // outlives the context
  runtime::Context context_;
  std::vector<ir::HostValue> inputs_;
  std::vector<Tensor> outputs_;
  bool bindable_ = true;
};

struct Phases {
  runtime::PhaseTimes device;
  double host = 0;
};
// Medians of copies to the device, work on it, copies back, and what a run takes beside them, all of the same
// runs: what the device's marks cost counts as the host's.
Phases measure_phases(Bound& bound) {
  constexpr int kRuns = 51;
  std::vector<double> parts[4];
  for (int i = 0; i < kRuns; ++i) {
    runtime::PhaseTimes one;
    runtime::RunOptions options;
    options.phases = &one;
    const int64_t start = now_ns();
    bound.run(options);
    const double whole = static_cast<double>(now_ns() - start) * 1e-6;
    parts[0].push_back(one.upload);
    parts[1].push_back(one.compute);
    parts[2].push_back(one.download);
    parts[3].push_back(whole - one.upload - one.compute - one.download);
  }
  for (std::vector<double>& p : parts) std::nth_element(p.begin(), p.begin() + kRuns / 2, p.end());
  return {{parts[0][kRuns / 2], parts[1][kRuns / 2], parts[2][kRuns / 2]}, parts[3][kRuns / 2]};
}

int run(const Options& o, const Globals& globals) {
  auto is_time = [](double s) { return s >= 0 && s <= 86400; };
  if (!is_time(o.seconds) || o.seconds == 0)
    throw Misuse{cat("--seconds is ", o.seconds), "give a number above 0 and up to 86400"};
  if (!is_time(o.warm_up_seconds))
    throw Misuse{cat("--warm-up is ", o.warm_up_seconds), "give a number from 0 to 86400"};
  if (o.iterations && *o.iterations <= 0)
    throw Misuse{cat("--iterations is ", *o.iterations), "give a number above 0"};
  if (o.batch && *o.batch <= 0) throw Misuse{cat("--batch is ", *o.batch), "give a number above 0"};
  device::Target target = globals.target();
  Stopwatch load;
  CompileOptions compile = compile_options(o.shapes, o.precision);
  compile.only_runs = true;
  auto plan = plan_of(o.model, target, compile);
  double compile_ms = plan->compile_seconds * 1e3;
  auto executable = runtime::Executable::create(plan, registry(), target, {.retuner = &retuner()});
  const ir::Graph& g = executable->graph();
  double load_ms = load.seconds() * 1e3 - compile_ms;
  std::vector<Dims> dims;
  std::vector<ir::HostValue> inputs;
  if (o.inputs.empty()) {
    dims = choose_dims(g, pairs(o.shapes, "--shape"), o.batch.value_or(0), plan->optimum);
    inputs = random_inputs(g, dims, o.seed);
  } else {
    inputs = load_inputs(g, pairs(o.inputs, "--input"));
    require_dims(g, inputs, pairs(o.shapes, "--shape"));
    for (const ir::HostValue& v : inputs) dims.push_back(v.tensor.dims());
  }
  Stopwatch first;
  Bound bound(*executable, std::move(inputs), o.device_buffers);
  bound.run();
  load_ms += first.seconds() * 1e3;  // to the first result

  executable->wait_until_tuned();  // what is measured is how it runs from then on
  int64_t warm_up = 1;
  for (Stopwatch w; w.seconds() < o.warm_up_seconds; ++warm_up) {
    throw_if_interrupted();
    bound.run();
  }
  std::vector<double> ms;
  const EnergyMeter meter(executable->target());
  Stopwatch measured;
  while (o.iterations ? static_cast<int64_t>(ms.size()) < *o.iterations
                      : measured.seconds() < o.seconds || ms.size() < 10) {
    throw_if_interrupted();
    int64_t start = now_ns();
    bound.run();
    ms.push_back(static_cast<double>(now_ns() - start) * 1e-6);
  }
  const Energy energy = meter.stop();
  Latency latency = summarise(ms);
  const Phases all_phases = executable->device() ? measure_phases(bound) : Phases{};
  const runtime::PhaseTimes& phases = all_phases.device;
  int64_t batch = !dims.empty() && !dims[0].empty() ? std::max<int64_t>(1, dims[0][0]) : 1;
  double throughput = 1e3 / latency.mean * static_cast<double>(batch);

  const int64_t peak_bytes = peak_memory_bytes();  // before the ceilings of the layers are measured
  LayerTimes layers;
  if (o.layers) layers = measure_layers(*executable, [&](const auto& options) { bound.run(options); });
  for (const std::string& w : latency.warnings) log_warn(w);

  nlohmann::json shapes = nlohmann::json::object();
  for (size_t i = 0; i < dims.size(); ++i) shapes[g[g.inputs[i]].name] = dims[i];
  runtime::Memory memory = executable->memory();
  if (globals.json) {
    nlohmann::json out = {
        {"latency_ms",
         {{"min", latency.min},
          {"median", latency.median},
          {"p90", latency.p90},
          {"p95", latency.p95},
          {"p99", latency.p99}}},
        {"throughput_per_s", throughput},
        {"host_peak_bytes", peak_bytes},
        {"device_peak_bytes", executable->device() ? executable->device()->peak_bytes() : 0},
        {"load_ms", load_ms},
        {"compile_ms", compile_ms},
        {"device", target.name},
        {"threads", threads()},
        {"precision", plan->precision},
        {"shapes", shapes},
        {"seed", o.seed},
        {"buffers", o.device_buffers ? "device" : "host"},
        {"warm_up", warm_up},
        {"iterations", ms.size()},
        {"stable", latency.warnings.empty()},
        {"warnings", latency.warnings},
        {"memory",
         {{"weights", memory.weights},
          {"packed", memory.packed},
          {"arena", memory.arena},
          {"scratch", memory.scratch}}},
    };
    if (executable->device()) {
      out["phases_ms"] = {{"host_to_device", phases.upload},
                          {"compute", phases.compute},
                          {"device_to_host", phases.download},
                          {"host", all_phases.host}};
      if (energy.off.empty())
        out["energy"] = {{"joules", energy.joules},
                         {"joules_per_run", energy.joules / static_cast<double>(ms.size())},
                         {"watts", energy.watts()},
                         {"samples_per_s_per_watt", throughput / energy.watts()}};
      else
        out["energy"] = {{"off", energy.off}};
      out["product"] = executable->device()->target().product;
      out["memory"]["device_weights"] = memory.device_weights;
    }
    if (o.layers) out["layers"] = nlohmann::json::parse(layers_json(layers));
    print_line(out.dump());
    return 0;
  }
  print_line(cat("model        ", o.model));
  for (size_t i = 0; i < dims.size(); ++i)
    print_line(cat(i ? "             " : "inputs       ", g[g.inputs[i]].name, " ", dims_text(dims[i])));
  print_line(cat("device       ", target.name, ", ", threads(), " threads, ", plan->precision));
  print_line(cat("latency      median ", fixed(latency.median, 3), " ms, min ", fixed(latency.min, 3),
                 ", p90 ", fixed(latency.p90, 3), ", p95 ", fixed(latency.p95, 3), ", p99 ",
                 fixed(latency.p99, 3)));
  if (executable->device())
    print_line(cat("             to the device ", fixed(phases.upload, 3), " ms, on it ",
                   fixed(phases.compute, 3), " ms, back ", fixed(phases.download, 3), " ms, beside it ",
                   fixed(all_phases.host, 3), " ms"));
  print_line(cat("throughput   ", fixed(throughput, 1), " per second"));
  print_line(
      cat("load         ", fixed(load_ms, 1), " ms to the first result",
          compile_ms > 0 ? cat(", after ", fixed(compile_ms, 1), " ms of compilation") : std::string()));
  print_line(cat("memory       ", bytes_text(static_cast<double>(peak_bytes)), " at peak; weights ",
                 bytes_text(static_cast<double>(memory.weights)), ", re-ordered ",
                 bytes_text(static_cast<double>(memory.packed)), ", arena ",
                 bytes_text(static_cast<double>(memory.arena))));
  if (executable->device())
    print_line(cat("on device    ", bytes_text(static_cast<double>(executable->device()->peak_bytes())),
                   " at peak, of them weights ", bytes_text(static_cast<double>(memory.device_weights))));
  if (executable->device() && !energy.off.empty())
    print_line(cat("power        not known: ", energy.off));
  else if (executable->device())
    print_line(cat("power        ", fixed(energy.watts(), 1), " W, ",
                   fixed(energy.joules / static_cast<double>(ms.size()), 4), " J a run, ",
                   fixed(throughput / energy.watts(), 2), " samples per second and watt"));
  print_line(cat("measured     ", ms.size(), " runs after ", warm_up, " to warm up, seed ", o.seed));
  if (o.layers) print_layers(layers);
  return 0;
}

}  // namespace

Run make_bench(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<Options>();
  app.add_option("model", o->model, "model or plan")->required()->type_name("MODEL_OR_PLAN");
  app.add_option("--batch", o->batch, "size of the first axis of the inputs, where it may vary")
      ->type_name("N");
  app.add_option("--input", o->inputs, "value of an input; without any, random ones")
      ->type_name("NAME=FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--shape", o->shapes, "shape of an input")
      ->type_name("NAME=AxBxC")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--seconds", o->seconds, "how long to measure")->capture_default_str()->type_name("S");
  app.add_option("--iterations", o->iterations, "measure this many runs instead")->type_name("N");
  app.add_option("--warm-up", o->warm_up_seconds, "seconds before measuring")
      ->capture_default_str()
      ->type_name("S");
  app.add_flag("--device-buffers", o->device_buffers,
               "inputs and results stay in the device's memory: a run then copies nothing");
  app.add_option("--seed", o->seed, "of the inputs")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--precision", o->precision, "when compiling a model")->capture_default_str();
  app.add_flag("--layers", o->layers,
               "time of every node, its arithmetic and its share of what the machine can do");
  return [o, &globals] { return run(*o, globals); };
}

}  // namespace pelton::cli
