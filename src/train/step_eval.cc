// SPDX-License-Identifier: Apache-2.0
// Steps that change no state: evaluation and the model alone.
#include "train/step_inputs.h"

namespace pelton::train {

using namespace ir;
using nn::Net;

StepGraph build_eval_step(const Trainable& model, const StepOptions& o) {
  StepGraph s{Graph(cat(model.name(), "_eval")), {}, {}, {}, {}, 0};
  Net net(s.graph, {.draw = false});
  Builder& b = net.builder();
  const Given given = add_model_inputs(s, model, o, o.batch);
  std::string target = target_name(o.loss);
  ValueId t = s.graph.add_input(find_target_type(model, o, o.batch), target);
  ValueId valid = s.graph.add_input(Type::tensor(DType::i64, {}), "valid");
  s.inputs.push_back(target);
  s.inputs.emplace_back("valid");
  ValueId y = with_classes(b, model.build(net, adapted(net, model, o, given)), model, o);
  net.set_valid(valid);
  LossOptions plain = o.loss;
  plain.label_smoothing = 0;
  Loss loss = build_loss(net, y, t, model.class_axis(), plain);
  auto output = [&](ValueId v, const char* name) {
    s.graph.add_output(v, name);
    s.outputs.emplace_back(name);
  };
  output(loss.sum, "loss_sum");
  output(loss.count, "count");
  if (has_classes(o.loss)) {
    output(count_correct(net, loss), "correct");
    output(count_top5(net, loss), "top5");
    output(b.op("arg_max", {loss.logits}, {{"axis", int64_t{1}}}), "predictions");
    output(loss.labels, "labels");
  }
  return s;
}

Graph build_inference(const Trainable& model, const StepOptions& o) {
  StepGraph s{Graph(model.name()), {}, {}, {}};
  s.graph.symbols->ranges["N"] = {1, INT64_MAX};
  Net net(s.graph, {.draw = false});
  const Given given = add_model_inputs(s, model, o, Dim::symbol("N"));
  s.graph.add_output(model.build(net, adapted(net, model, o, given)), model.output());
  return std::move(s.graph);
}

}  // namespace pelton::train
