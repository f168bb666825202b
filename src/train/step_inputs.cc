// SPDX-License-Identifier: Apache-2.0
#include "train/step_inputs.h"

#include <algorithm>

#include "data/lower.h"
#include "train/pad_classes.h"

namespace pelton::train {

using namespace ir;
using nn::Net;

namespace {

// Brings what the data gives to what the model takes: u8 to [0, 1], channels to the front, normalised.
ValueId adapt(Builder& b, ValueId x, const nn::ModelInput& want, const InputForm& form) {
  b.set_name(cat("input ", want.name));
  bool bytes = b.dtype(x) == DType::u8;
  size_t rank = want.sample.size();
  x = b.cast(x, want.dtype);
  if (bytes && want.dtype == DType::f32) x = b.mul(x, b.like(x, 1.0 / 255));
  const Shape have(b.shape(x).begin() + 1, b.shape(x).end());
  bool channels_last = rank == 3 && have != to_shape(want.sample) &&
                       have == to_shape({want.sample[1], want.sample[2], want.sample[0]});
  if (channels_last) x = b.transpose(x, {0, 3, 1, 2});
  if (!form.mean.empty()) {
    Shape channel(rank, Dim(1));
    channel[0] = static_cast<int64_t>(form.mean.size());
    auto constant = [&](const std::vector<double>& v) {
      return b.constant(from_doubles(want.dtype, *as_dims(channel), v));
    };
    std::vector<double> scale;
    for (double s : form.std) scale.push_back(1 / s);
    x = b.mul(b.sub(x, constant(form.mean)), constant(scale));
  }
  Shape shape{b.shape(x)[0]};
  for (int64_t d : want.sample) shape.emplace_back(d);
  return b.reshape(x, shape);
}

}  // namespace

Given add_model_inputs(StepGraph& s, const Trainable& model, const StepOptions& o, const Dim& batch) {
  Given out;
  std::vector<nn::ModelInput> wanted = model.inputs();
  for (size_t i = 0; i < wanted.size(); ++i) {
    bool given = i < o.forms.size() && o.forms[i];
    DType dtype = given ? o.forms[i]->dtype : wanted[i].dtype;
    Shape shape{batch};
    for (int64_t d : given ? o.forms[i]->sample : wanted[i].sample) shape.emplace_back(d);
    out.raw.push_back(s.graph.add_input(Type::tensor(dtype, shape), wanted[i].name));
    s.inputs.push_back(wanted[i].name);
  }
  if (std::ranges::any_of(o.forms, [](const auto& f) { return f && f->stages; })) {
    out.epoch = s.graph.add_input(Type::tensor(DType::i64, {}), "epoch");
    out.indices = s.graph.add_input(Type::tensor(DType::i64, {batch}), "indices");
    s.inputs.insert(s.inputs.end(), {"epoch", "indices"});
  }
  return out;
}

std::vector<ValueId> adapted(Net& net, const Trainable& model, const StepOptions& o, const Given& given) {
  std::vector<nn::ModelInput> wanted = model.inputs();
  std::vector<ValueId> out = given.raw;
  for (size_t i = 0; i < out.size(); ++i) {
    if (i >= o.forms.size() || !o.forms[i]) continue;
    Builder& b = net.builder();
    if (o.forms[i]->stages) {
      b.set_name(cat(kStages, "/", wanted[i].name));
      out[i] = data::lower_training(b, *o.forms[i]->stages, out[i], given.epoch, given.indices);
    }
    out[i] = adapt(b, out[i], wanted[i], *o.forms[i]);
  }
  return out;
}

Type find_target_type(const Trainable& model, const StepOptions& o, const Dim& batch) {
  StepGraph probe;
  Net net(probe.graph, {.draw = false});
  StepOptions plain = o;
  const Given given = add_model_inputs(probe, model, plain, batch);
  ValueId y = model.build(net, adapted(net, model, plain, given));
  return target_type(o.loss, net.builder().type(y), model.class_axis());
}

ValueId with_classes(Builder& b, ValueId y, const Trainable& model, const StepOptions& o) {
  bool last = model.class_axis() == -1 || model.class_axis() == b.rank(y) - 1;
  if (o.class_multiple <= 1 || !has_classes(o.loss) || o.loss.label_smoothing != 0 || !last) return y;
  return pad_classes(b, y, o.class_multiple);
}

}  // namespace pelton::train
