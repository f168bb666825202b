// SPDX-License-Identifier: Apache-2.0
// What a trainer holds and the operations that its runs are made of.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>

#include "base/log.h"
#include "base/philox.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/loader.h"
#include "train/program.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace pelton::train {

inline int64_t resident_bytes() {
  long pages = 0, resident = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return int64_t{resident} * sysconf(_SC_PAGESIZE);
}

// Beta(alpha, alpha) for alpha up to 1 (Johnk 1964), a function of seed and update alone.
inline double beta_draw(uint64_t seed, int64_t update, double alpha) {
  RandomStream stream{seed, static_cast<uint64_t>(update), 0x6D6978};
  for (uint64_t i = 0; i < 1000; ++i) {
    double x = std::pow(stream.uniform(2 * i), 1 / alpha), y = std::pow(stream.uniform(2 * i + 1), 1 / alpha);
    if (x + y > 0 && x + y <= 1) return x / (x + y);
  }
  return 0.5;
}

inline bool larger_is_better(const std::string& metric) {
  return metric != "loss" && metric != "perplexity";
}

constexpr int64_t kClassMultiple = 64;  // sizes of products that tensor cores take whole

struct Trainer::Impl {
  // An update that was started and whose results nobody has looked at.
  struct OnWay {
    int64_t update;
    StepInputs inputs;
  };

  Impl(Recipe r, TrainerOptions o, const backend::Registry& reg)
      : recipe(std::move(r)), options(std::move(o)), registry(reg) {
    model = recipe.onnx.empty() ? named_model(recipe.model, recipe.model_options)
                                : onnx_model(recipe.onnx, recipe.model_options);
    step.loss = recipe.loss;
    step.batch = recipe.data.batch;
    prepare_data();
    data_state = loaders.train->state();
    step.accumulate = recipe.accumulate;
    step.seed = recipe.seed;
    step.optimizer = recipe.optimizer;
    step.optimizer_options = recipe.optimizer_options;
    step.clip_norm = recipe.clip_norm;
    step.memory_budget_bytes = static_cast<int64_t>(recipe.memory_budget_gib * 1073741824.0);
    step.average = recipe.average;
    step.groups = recipe.groups;
    step.mix = recipe.mixup > 0;
    epoch_updates = loaders.train->steps();
    if (epoch_updates == 0)
      fail(ErrorCode::usage,
           cat("the ", loaders.train->samples(), " samples do not fill one batch of ", recipe.data.batch),
           recipe.name, "lower data.batch or leave data.drop_last out");
    updates = recipe.steps
                  ? recipe.steps
                  : std::max<int64_t>(1, std::llround(recipe.epochs * static_cast<double>(epoch_updates)));
    step.schedule = make_schedule(recipe, updates, epoch_updates);
    compile_options.precision = recipe.precision;
    compile_options.full_precision.insert(recipe.full_precision.begin(), recipe.full_precision.end());
    compile_options.full_precision.insert({kUpdate, kStages});
    step.scaling = recipe.scaling;
    // Updates that follow their gradients one by one let those go.
    if (step.memory_budget_bytes > 0) compile_options.disabled.insert("merge_updates");
    step.ahead = options.target.kind != device::Kind::cpu;
    if (step.ahead && (recipe.precision == "bf16" || recipe.precision == "fp16"))
      step.class_multiple = kClassMultiple;
  }

  void prepare_data() {
    ir::Graph probe;
    nn::Net net(probe, {.draw = false});
    std::vector<ir::ValueId> in;
    Wanted wanted;
    wanted.inputs = model->inputs();
    for (const nn::ModelInput& i : wanted.inputs) {
      Shape shape{1};
      for (int64_t d : i.sample) shape.emplace_back(d);
      in.push_back(probe.add_input(ir::Type::tensor(i.dtype, shape), i.name));
    }
    const ir::Type output = probe.type(model->build(net, in));
    const ir::Type target = target_type(recipe.loss, output, model->class_axis());
    wanted.target = target_name(recipe.loss);
    wanted.target_sample = *as_dims(Shape(target.shape.begin() + 1, target.shape.end()));
    wanted.ignore = recipe.loss.ignore;
    if (has_classes(recipe.loss)) {
      int64_t axis = model->class_axis() < 0 ? output.rank() + model->class_axis() : model->class_axis();
      wanted.classes = output.shape[static_cast<size_t>(axis)].value();
    }
    classes = wanted.classes;
    // Read for the sizes of its samples, perhaps without a GPU.
    if (options.compile_only && recipe.data.train)
      for (data::StageSpec& s : recipe.data.train->stages)
        if (s.op == "decode") s.options.erase("device");
    std::shared_ptr<device::Device> device;
    if (options.target.kind != device::Kind::cpu && !options.compile_only)
      device = registry.open(options.target);
    loaders = make_loaders(recipe, wanted, device);
    step.loss.soft = loaders.train->soft();
    step.forms = loaders.train->forms(recipe.data.mean, recipe.data.std);
    for (const std::optional<InputForm>& form : step.forms)
      if (form && form->stages) check_devices(*form->stages);
    if (loaders.eval) eval_forms = loaders.eval->forms(recipe.data.mean, recipe.data.std);
  }

  // A stage that names the GPU never runs elsewhere.
  void check_devices(const data::PipelineSpec& stages) const {
    if (options.target.kind != device::Kind::cpu) return;
    for (const data::StageSpec& s : stages.stages)
      if (auto it = s.options.find("device");
          it != s.options.end() && it->second.texts == std::vector<std::string>{"gpu"})
        fail(ErrorCode::no_device,
             cat("device = \"gpu\" for ", s.op, ", but the training step is on the CPU"), s.where,
             "train with --device cuda, or leave 'device' out");
  }

  static void report_memory(const StepGraph& graph) {
    const autodiff::Recomputation& r = graph.recomputed;
    auto mebibytes = [](int64_t bytes) {
      return static_cast<double>(std::llround(static_cast<double>(bytes) * 10 / (1 << 20))) / 10;
    };
    log_info("memory budget: ", r.values, " results are computed again (", std::llround(r.flops * 1e-6),
             " MFLOP a step), ", mebibytes(r.kept_bytes), " of ", mebibytes(r.kept_bytes_before),
             " MiB stay");
    if (r.kept_bytes > graph.activation_budget_bytes)
      log_warn("the memory budget leaves ", mebibytes(graph.activation_budget_bytes),
               " MiB for results of the forward pass, but ", mebibytes(r.kept_bytes),
               " MiB must stay: lower data.batch or raise step.memory_budget");
  }

  // Initial values are drawn once; later programs get theirs from the one before.
  std::unique_ptr<Program> make_program(StepOptions o, bool draw) {
    o.draw = draw;
    StepGraph graph = build_train_step(*model, o);
    if (o.memory_budget_bytes > 0) report_memory(graph);
    if (draw && !recipe.weights.empty()) {
      LoadReport report =
          load_weights(graph.graph, read_weights(recipe.weights), recipe.fresh, recipe.weights);
      log_info("weights: ", report.loaded, " loaded, ", report.fresh.size(), " fresh, ", report.unused.size(),
               " of the file unused");
    }
    auto made = std::make_unique<Program>(std::move(graph), options.target, compile_options, registry,
                                          options.deterministic);
    made->take_tactics(tactics);
    return made;
  }

  void start() {
    current = make_program(step, true);
    // A moving average starts from the parameters as loaded.
    if (recipe.average > 0)
      for (const std::string& name : current->trained())
        current->set_state(cat("average.", name), current->state(name));
  }

  // Parameters that train only from now on have no state yet: zeros for the optimizer, themselves for the
  // average.
  static void take_state(Program& p, const std::map<std::string, Tensor>& state) {
    for (const auto& [name, t] : state)
      if (p.has_state(name)) p.set_state(name, t);
    for (const std::string& name : p.trained())
      if (std::string average = cat("average.", name); p.has_state(average) && !state.count(average))
        p.set_state(average, p.state(name));
  }

  // Copies what both have.
  static void hand_over(const Program& from, Program& to) {
    for (const auto& [name, t] : from.all_state())
      if (to.has_state(name)) to.set_state(name, t);
  }

  // The program for a batch: short ones run masked, unfrozen groups change the graph.
  Program& program_for(int64_t epoch, bool masked) {
    int64_t phase = 0;
    for (const ParameterGroup& g : recipe.groups)
      if (g.from_epoch <= epoch) phase = std::max(phase, g.from_epoch);
    if (phase != current_phase) {
      store_aside();
      step.epoch = phase;
      step.masked = false;
      current = make_program(step, false);
      take_state(*current, aside);
      short_program.reset();
      current_phase = phase;
      last_was_masked = false;
    }
    if (masked && !short_program) {
      StepOptions o = step;
      o.masked = true;
      short_program = make_program(o, false);
    }
    if (masked != last_was_masked) {
      hand_over(masked ? *current : *short_program, masked ? *short_program : *current);
      last_was_masked = masked;
    }
    return masked ? *short_program : *current;
  }
  Program& active() { return last_was_masked ? *short_program : *current; }
  // State of slots that a later program may have again.
  void store_aside() {
    for (const auto& [name, t] : active().all_state()) aside[name] = t;
  }
  std::map<std::string, Tensor> whole_state() {
    std::map<std::string, Tensor> all = active().all_state();
    all.insert(aside.begin(), aside.end());
    return all;
  }

  void check_memory_message(const Error& e) {
    if (e.code() != ErrorCode::out_of_memory) return;
    throw Error(e.code(), e.message(), e.where(),
                cat("lower data.batch (", recipe.data.batch, ") or raise step.accumulate (",
                    recipe.accumulate, "), which divides the memory of activations"));
  }

  StepInputs step_inputs(const TrainBatch& b, bool masked) const {
    StepInputs in(b.inputs);
    in.on_device = b.on_device;
    in.host.push_back(b.target);
    if (masked) in.host.push_back(Tensor::scalar<int64_t>(b.valid));
    if (step.mix)
      in.host.push_back(
          Tensor::scalar<float>(static_cast<float>(beta_draw(recipe.seed, done, recipe.mixup))));
    return in;
  }

  ir::RandomKey key() const { return {recipe.seed, static_cast<uint64_t>(done)}; }

  // Results of an update, some time after it was started.
  struct Finished {
    int64_t update = 0;  // number of updates with it
    Values values;
  };

  // Starts the next update; finish_update() gives the results of the oldest that is on its way.
  void start_update(const TrainBatch& b) {
    Program& p = program_for(done / epoch_updates, needs_mask(b));
    StepInputs in = step_inputs(b, needs_mask(b));
    p.start(in, key());
    ++done;
    on_way.push_back({done, std::move(in)});
  }
  bool needs_mask(const TrainBatch& b) const { return b.valid < recipe.data.batch; }
  // Whether the next batch goes to the program that the updates on their way run in, and leaves room there.
  bool may_start(const TrainBatch& b) {
    return on_way.empty() || (on_way.size() < active().most_running() && needs_mask(b) == last_was_masked &&
                              done % epoch_updates != 0);
  }

  Finished finish_update() {
    std::map<std::string, Tensor> out = active().finish();
    OnWay u = std::move(on_way.front());
    on_way.pop_front();
    check_finite(u, out);
    Finished f{u.update, {}};
    for (const char* name : {"loss", "lr", "grad_norm", "loss_scale"})
      if (auto it = out.find(name); it != out.end()) f.values.emplace_back(name, it->second.get_double(0));
    return f;
  }

  void check_finite(const OnWay& u, const std::map<std::string, Tensor>& out) {
    double loss = out.at("loss").get_double(0);
    const char* what = std::isfinite(loss) ? nullptr : "loss";
    if (!what && out.count("grad_norm") && !std::isfinite(out.at("grad_norm").get_double(0))) {
      // An overflow under a scale that can shrink is what the scale is for.
      if (step.scaling.on && out.at("loss_scale").get_double(0) > step.scaling.floor) return;
      what = "gradient norm";
    }
    if (!what) return;
    // Updates behind it changed nothing.
    while (active().running() > 0) active().finish();
    on_way.clear();
    std::string node =
        active().first_not_finite(u.inputs.to_host(), {recipe.seed, static_cast<uint64_t>(u.update - 1)});
    fail(ErrorCode::numeric, cat("the ", what, " of update ", u.update, " is not finite (loss ", loss, ")"),
         node.empty() ? "no node before it" : cat("first not finite: ", node),
         "lower the learning rate, set step.clip_norm, or check the data for NaN; the last checkpoint is "
         "unchanged");
  }

  Values evaluate() {
    if (!eval_program) {
      StepOptions o = step;
      o.batch = recipe.data.eval_batch ? recipe.data.eval_batch : recipe.data.batch;
      o.forms = eval_forms;
      o.loss.soft = false;
      eval_program = std::make_unique<Program>(build_eval_step(*model, o), options.target, compile_options,
                                               registry, options.deterministic);
      eval_program->take_tactics(tactics);
    }
    // The state of the step itself; what only earlier programs had comes from what was kept of them.
    Program& of = active();
    for (const std::string& name : eval_program->state_names()) {
      const std::string average = cat("average.", name);
      if (of.has_state(average))
        eval_program->share_state(name, of, average);
      else if (auto kept = aside.find(average); kept != aside.end())
        eval_program->set_state(name, kept->second);
      else
        eval_program->share_state(name, of, name);
    }
    struct Sharing {
      Program& with;
      ~Sharing() { with.end_sharing(); }
    } sharing{*eval_program};
    return train::evaluate(*eval_program, *loaders.eval, classes, model->class_axis() == -1, done);
  }

  Checkpoint snapshot() {
    Checkpoint c;
    c.state = whole_state();
    c.updates = done;
    c.epoch = done / epoch_updates;
    c.epoch_step = done % epoch_updates;
    c.data_state = data_state;
    c.model = model->name();
    c.recipe = recipe.text;
    c.best = best;
    c.has_best = has_best;
    c.since_best = since_best;
    for (const auto* p : {&current, &short_program, &eval_program})
      if (*p) tactics.merge((*p)->tactics());
    c.tactics = tactics;
    return c;
  }

  void restore(const Checkpoint& c) {
    if (c.model != model->name())
      fail(ErrorCode::bad_name,
           cat("the checkpoint is of the model '", c.model, "', the recipe has '", model->name(), "'"),
           recipe.output);
    tactics = c.tactics;
    current->take_tactics(tactics);
    done = c.updates;
    program_for(done / epoch_updates, false);
    // A group that joins just here has no state of its own in the file.
    bool joins = std::any_of(recipe.groups.begin(), recipe.groups.end(),
                             [&](const ParameterGroup& g) { return g.from_epoch > 0; });
    for (const auto& [name, t] : current->all_state()) {
      if (name == "failed") continue;  // of steps that run ahead, whatever device wrote the file
      auto it = c.state.find(name);
      if (it == c.state.end()) {
        if (joins && (name.starts_with("optimizer.") || name.starts_with("average."))) continue;
        fail(ErrorCode::bad_name, cat("the checkpoint has no '", name, "'"), recipe.output,
             "resume with the recipe of the run");
      }
      if (it->second.dtype() != t.dtype() || it->second.dims() != t.dims())
        fail(ErrorCode::bad_shape,
             cat("'", name, "' is ", it->second.str(), " in the checkpoint, ", t.str(),
                 " in the recipe's model"),
             recipe.output, "resume with the recipe of the run");
    }
    take_state(*current, c.state);
    for (const auto& [name, t] : c.state)
      if (!current->has_state(name)) aside[name] = t;
    loaders.train->restore(c.data_state);
    data_state = c.data_state;
    best = c.best;
    has_best = c.has_best;
    since_best = c.since_best;
  }

  // Of the device where there is one, at its most; else of this process.
  int64_t memory_bytes() {
    const device::Device* device = active().executable().device();
    return device ? device->peak_bytes() : resident_bytes();
  }

  std::string best_metric() const {
    if (!recipe.best_metric.empty()) return recipe.best_metric;
    return classes && model->class_axis() != -1 ? "accuracy" : "loss";
  }
  // True if these values are the best so far.
  bool judge(const Values& values) {
    std::string metric = best_metric();
    for (const auto& [name, v] : values) {
      if (name != metric) continue;
      bool better = !has_best || (larger_is_better(metric) ? v > best : v < best);
      if (better) best = v, has_best = true, best_values = values;
      since_best = better ? 0 : since_best + 1;
      return better;
    }
    std::string names;
    for (const auto& [name, v] : values) append(names, cat(names.empty() ? "" : ", ", name));
    fail(ErrorCode::usage, cat("eval.best is '", metric, "', but the evaluation gives ", names), recipe.name);
  }

  Recipe recipe;
  TrainerOptions options;
  const backend::Registry& registry;
  std::unique_ptr<Trainable> model;
  StepOptions step;
  compiler::Options compile_options;
  Loaders loaders;
  std::vector<std::optional<InputForm>> eval_forms;
  int64_t classes = 0, epoch_updates = 0, updates = 0, done = 0;
  std::unique_ptr<Program> current, short_program, eval_program;
  int64_t current_phase = 0;
  bool last_was_masked = false;
  std::map<std::string, Tensor> aside;
  double best = 0;
  bool has_best = false;
  int64_t since_best = 0;
  Values best_values;
  std::map<std::string, std::string> tactics;  // that the run has chosen by timing
  std::string data_state;                      // after the last update that was started
  std::deque<OnWay> on_way;
};

}  // namespace pelton::train
