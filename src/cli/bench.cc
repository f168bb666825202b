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
#include "cli/bench_result.h"
#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/process_memory.h"
#include "cli/run_model.h"
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

// Phases and the host's part of a run.
BenchOnDevice measure_phases(Bound& bound) {
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
  BenchOnDevice out;
  out.phases = {parts[0][kRuns / 2], parts[1][kRuns / 2], parts[2][kRuns / 2]};
  out.host_ms = parts[3][kRuns / 2];
  return out;
}

void check(const Options& o) {
  auto is_time = [](double s) { return s >= 0 && s <= 86400; };
  if (!is_time(o.seconds) || o.seconds == 0)
    throw Misuse{cat("--seconds is ", o.seconds), "give a number above 0 and up to 86400"};
  if (!is_time(o.warm_up_seconds))
    throw Misuse{cat("--warm-up is ", o.warm_up_seconds), "give a number from 0 to 86400"};
  if (o.iterations && *o.iterations <= 0)
    throw Misuse{cat("--iterations is ", *o.iterations), "give a number above 0"};
  if (o.batch && *o.batch <= 0) throw Misuse{cat("--batch is ", *o.batch), "give a number above 0"};
}

// As given, else random ones.
std::vector<ir::HostValue> inputs_of(const Options& o, const ir::Graph& g, const runtime::Plan& plan) {
  const auto shapes = pairs(o.shapes, "--shape");
  if (o.inputs.empty())
    return random_inputs(g, choose_dims(g, shapes, o.batch.value_or(0), plan.optimum), o.seed);
  std::vector<ir::HostValue> inputs = load_inputs(g, pairs(o.inputs, "--input"));
  require_dims(g, inputs, shapes);
  return inputs;
}

// Warms up, then measures: fills in what the runs say.
void measure(const Options& o, Bound& bound, const runtime::Executable& executable, BenchResult& r) {
  r.warm_up = 1;
  for (Stopwatch w; w.seconds() < o.warm_up_seconds; ++r.warm_up) {
    throw_if_interrupted();
    bound.run();
  }
  std::vector<double> ms;
  const EnergyMeter meter(executable.target());
  Stopwatch measured;
  while (o.iterations ? static_cast<int64_t>(ms.size()) < *o.iterations
                      : measured.seconds() < o.seconds || ms.size() < 10) {
    throw_if_interrupted();
    int64_t start = now_ns();
    bound.run();
    ms.push_back(static_cast<double>(now_ns() - start) * 1e-6);
  }
  const Energy energy = meter.stop();
  r.runs = ms.size();
  r.latency = summarise(ms);
  if (executable.device()) {
    r.device = measure_phases(bound);
    r.device->energy = energy;
    r.device->product = executable.device()->target().product;
  }
  r.peak_bytes = peak_memory_bytes();  // before the ceilings of the layers are measured
  if (o.layers) r.layers = measure_layers(executable, [&](const auto& options) { bound.run(options); });
}

int run(const Options& o, const Globals& globals) {
  check(o);
  const device::Target target = globals.target();
  BenchResult r;
  Stopwatch load;
  CompileOptions compile = compile_options(o.shapes, o.precision);
  compile.only_runs = true;
  const auto plan = plan_of(o.model, target, compile);
  r.compile_ms = plan->compile_seconds * 1e3;
  const auto executable = runtime::Executable::create(plan, registry(), target, {.retuner = &retuner()});
  r.load_ms = load.seconds() * 1e3 - r.compile_ms;
  const ir::Graph& g = executable->graph();
  std::vector<ir::HostValue> inputs = inputs_of(o, g, *plan);
  for (size_t i = 0; i < inputs.size(); ++i)
    r.inputs.emplace_back(g[g.inputs[i]].name, inputs[i].tensor.dims());
  Stopwatch first;
  Bound bound(*executable, std::move(inputs), o.device_buffers);
  bound.run();
  r.load_ms += first.seconds() * 1e3;

  executable->wait_until_tuned();  // what is measured is how it runs from then on
  measure(o, bound, *executable, r);
  const bool has_axis = !r.inputs.empty() && !r.inputs[0].second.empty();
  const int64_t batch = has_axis ? std::max<int64_t>(1, r.inputs[0].second[0]) : 1;
  r.throughput = 1e3 / r.latency.mean * static_cast<double>(batch);
  r.model = o.model;
  r.target = target.name;
  r.precision = plan->precision;
  r.threads = threads();
  r.seed = o.seed;
  r.device_buffers = o.device_buffers;
  r.memory = executable->memory();
  if (r.device) r.device->peak_bytes = executable->device()->peak_bytes();
  for (const std::string& w : r.latency.warnings) log_warn(w);
  if (globals.json)
    print_json(bench_json(r));
  else
    print_bench(r);
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
