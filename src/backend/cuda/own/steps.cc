// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/own/steps.h"

#include <algorithm>

#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

using S = EpilogueStep;

struct Row {
  std::string_view op;
  S::Op code;
};
constexpr Row kEltwise[] = {
    {"relu", S::relu},
    {"sigmoid", S::sigmoid},
    {"tanh", S::tanh},
    {"silu", S::silu},
    {"gelu", S::gelu},
    {"gelu_tanh", S::gelu_tanh},
    {"hard_swish", S::hard_swish},
    {"hard_sigmoid", S::hard_sigmoid},
    {"leaky_relu", S::leaky_relu},
    {"elu", S::elu},
    {"clamp", S::clamp},
    {"mish", S::mish},
    {"exp", S::exp},
    {"abs", S::abs},
    {"square", S::square},
    {"sqrt", S::sqrt},
    {"round", S::round},
};
constexpr Row kBinary[] = {{"add", S::add}, {"sub", S::sub}, {"mul", S::mul},    {"div", S::div},
                           {"max", S::max}, {"min", S::min}, {"prelu", S::prelu}};

template <size_t N>
const Row* find(const Row (&rows)[N], std::string_view op) {
  for (const Row& r : rows)
    if (r.op == op) return &r;
  return nullptr;
}

// Dims of an operand against a result of `rank` dims: which forms can hold at every size.
std::string refuse_operand(const GroupOperand& o, const ir::Type& result, const ir::Graph& graph,
                           ir::NodeId node) {
  const ir::Type* type =
      o.input >= 0 ? &graph.type(graph[node].inputs[static_cast<size_t>(o.input)]) : nullptr;
  const DType t = type ? type->dtype : o.constant.dtype();
  if (!elem_of(t)) return cat("has an operand of ", name(t));
  const size_t rank = result.shape.size();
  if (o.shape.size() > rank) return "has an operand of more dims than the result";
  Shape s = o.shape;
  s.insert(s.begin(), rank - s.size(), Dim(1));
  if (s == result.shape) {
    if (o.reshaped && !result.layout.is_plain()) return "reshapes an operand of another layout";
    if (type ? type->layout == result.layout : result.layout.is_plain()) return {};
    return "has an operand in another layout";
  }
  for (size_t d = 2; d < rank; ++d)
    if (!(s[d] == Dim(1))) return "has an operand that is not one number a channel or a whole result";
  if (!(s[1] == Dim(1)) && !(s[1] == result.shape[1])) return "has an operand of other channels";
  if (!(s[0] == Dim(1)) && (!(s[0] == result.shape[0]) || s[1] == Dim(1)))
    return "has an operand of one number an image";
  return {};
}

S step_form(const GroupStep& g) {
  S s;
  if (g.kind == GroupStep::linear) {
    s.op = S::linear;
    s.a = g.imm[0];
    s.b = g.imm[1];
  } else if (g.kind == GroupStep::binary) {
    s.op = find(kBinary, g.op)->code;
  } else if (g.op == "neg") {
    s.op = S::linear;
    s.a = -1;
  } else {
    s.op = find(kEltwise, g.op)->code;
    s.a = g.imm[0];
    s.b = g.imm[1];
  }
  return s;
}

}  // namespace

std::string refuse_steps(const Group& group, const ir::Graph& graph, ir::NodeId node, bool main_bias) {
  if (group.steps.size() + main_bias > static_cast<size_t>(kMaxEpilogueSteps))
    return cat("has ", group.steps.size(), " steps after the contraction");
  const ir::Type& result = output_type(graph, node, group.output);
  for (const GroupStep& s : group.steps) {
    if (s.kind == GroupStep::eltwise && s.op != "neg" && !find(kEltwise, s.op))
      return cat("there is no step for ", s.op);
    if (s.kind != GroupStep::binary) continue;
    if (!find(kBinary, s.op)) return cat("there is no step for ", s.op);
    if (std::string why = refuse_operand(s.operand, result, graph, node); !why.empty())
      return cat(s.op, " ", why);
  }
  return {};
}

StepsPlan plan_steps(const Group& group, const GroupOperand& bias, const Instance& instance,
                     const TensorSpec& result, bool here) {
  StepsPlan plan;
  auto add = [&](S step, const GroupOperand* o) {
    Packed packed;
    int input = -1;
    if (o) {
      Dims dims = dims_of(*o, instance);
      const int64_t count = element_count(dims);
      dims.insert(dims.begin(), result.dims.size() - dims.size(), 1);
      if (count == 1)
        step.where = S::one;
      else if (dims == result.dims)
        step.where = S::full;
      else
        step.where = dims[0] == 1 ? S::channel : S::image_channel;
      input = o->input;
      DType type = DType::f32;
      if (input >= 0) {
        type = instance.inputs[static_cast<size_t>(input)].dtype;
      } else {
        type = o->constant.dtype();
        if (here)
          packed = shared_packed(o->constant, "as it is",
                                 [&] { return upload(o->constant, "an operand of a group"); });
      }
      step.type = elem(type);
    }
    plan.form.steps[plan.form.count++] = step;
    plan.inputs.push_back(input);
    plan.packed.push_back(std::move(packed));
  };
  if (bias.present()) {
    GroupOperand b = bias;  // [C], along axis 1
    b.shape.assign(result.dims.size(), Dim(1));
    b.shape[1] = Dim(result.dims[1]);
    b.reshaped = true;
    S step;
    step.op = S::add;
    add(step, &b);
  }
  for (const GroupStep& g : group.steps)
    add(step_form(g), g.kind == GroupStep::binary ? &g.operand : nullptr);
  return plan;
}

Epilogue StepsPlan::bind(const RunArgs& args) const {
  Epilogue e = form;
  for (int i = 0; i < e.count; ++i) {
    const auto at = static_cast<size_t>(i);
    if (inputs[at] >= 0)
      e.steps[i].operand = args.in[static_cast<size_t>(inputs[at])];
    else if (packed[at])
      e.steps[i].operand = packed[at]->get();
  }
  return e;
}

std::optional<EpilogueStep> step_of(const ir::Node& n) {
  std::string_view op = n.op->name;
  if (op == "gelu" && n.get_bool("tanh")) op = "gelu_tanh";
  const Row* row = find(kEltwise, op);
  if (!row || op == "clamp" || op == "round") return {};
  S s;
  s.op = row->code;
  if (n.op->find_attr("alpha")) s.a = static_cast<float>(n.get_real("alpha"));
  if (n.op->find_attr("beta")) s.b = static_cast<float>(n.get_real("beta"));
  return s;
}

}  // namespace pelton::backend::cuda
