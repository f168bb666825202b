// SPDX-License-Identifier: Apache-2.0
// A trainer from its recipe: model, data, the options of its step.
#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "train/trainer_impl.h"

namespace pelton::train {

namespace {

constexpr int64_t kClassMultiple = 64;  // sizes of products that tensor cores take whole

}  // namespace

Trainer::Impl::Impl(Recipe r, TrainerOptions o, const backend::Registry& reg)
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
  if (const std::string why = compiler::slow_precision(options.target, recipe.precision); !why.empty())
    log_warn(why);
  compile_options.full_precision.insert(recipe.full_precision.begin(), recipe.full_precision.end());
  compile_options.full_precision.insert({kUpdate, kStages});
  step.scaling = recipe.scaling;
  // Updates that follow their gradients one by one let those go.
  if (step.memory_budget_bytes > 0) compile_options.disabled.insert("merge_updates");
  step.ahead = options.target.kind != device::Kind::cpu;
  if (step.ahead && (recipe.precision == "bf16" || recipe.precision == "fp16"))
    step.class_multiple = kClassMultiple;
}

void Trainer::Impl::prepare_data() {
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
      if (s.op == "decode" || s.op == "cache") s.options.erase("device");
  std::shared_ptr<device::Device> device;
  if (options.target.kind != device::Kind::cpu && !options.compile_only)
    device = registry.open(options.target);
  loaders = make_loaders(recipe, wanted, device);
  const auto named = static_cast<int64_t>(loaders.train->classes().size());
  if (named && named < classes) log_warn("the data has ", named, " classes, the model ", classes);
  step.loss.soft = loaders.train->soft();
  step.forms = loaders.train->forms(recipe.data.mean, recipe.data.std);
  for (const std::optional<InputForm>& form : step.forms)
    if (form && form->stages) check_devices(*form->stages);
  if (loaders.eval) eval_forms = loaders.eval->forms(recipe.data.mean, recipe.data.std);
}

void Trainer::Impl::check_devices(const data::PipelineSpec& stages) const {
  if (options.target.kind != device::Kind::cpu) return;
  for (const data::StageSpec& s : stages.stages)
    if (auto it = s.options.find("device");
        it != s.options.end() && it->second.texts == std::vector<std::string>{"gpu"})
      fail(ErrorCode::no_device, cat("device = \"gpu\" for ", s.op, ", but the training step is on the CPU"),
           s.where, "train with --device cuda, or leave 'device' out");
}

}  // namespace pelton::train
