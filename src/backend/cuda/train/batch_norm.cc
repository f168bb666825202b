// SPDX-License-Identifier: Apache-2.0
// batch_norm_train, alone or with a sum and an activation behind it, and batch_norm_backward, alone or behind
// the gradient of an activation whose operand it computes again. Plain or channels last.
#include <algorithm>

#include "backend/cuda/implementations.h"
#include "backend/cuda/own/steps.h"
#include "backend/cuda/train/batch_norm_form.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

std::string refuse_data(const ir::Type& x) {
  if (!elem_of(x.dtype)) return cat("needs f32, f16 or bf16, got ", name(x.dtype));
  if (x.rank() < 2) return "needs channels";
  if (x.layout.kind == ir::Layout::Kind::blocked) return cat("does not take layout ", x.layout.str());
  return {};
}

BatchNorm sizes_of(const TensorSpec& x, DType parameters, const device::Target& target) {
  BatchNorm g;
  g.type = elem(x.dtype);
  // Without places both layouts are one; rows of channels are what is read fastest.
  g.channels_last = is_channels_last(x.layout) || x.dims.size() == 2;
  g.n = static_cast<int>(x.dims[0]);
  g.c = static_cast<int>(x.dims[1]);
  g.places = element_count(Dims(x.dims.begin() + 2, x.dims.end()));
  g.parameter_type = elem(parameters);
  g.multiprocessors = multiprocessors(target);
  return g;
}

int position(const std::vector<ir::ValueId>& list, ir::ValueId v) {
  const auto at = std::find(list.begin(), list.end(), v);
  return at == list.end() ? -1 : static_cast<int>(at - list.begin());
}

// --- forward

// Where the results of the norm are among those of the node: 0 is what the chain yields, -1 is not wanted.
std::vector<int> results_of(const ir::Graph& graph, ir::NodeId id, const Group& group) {
  std::vector<int> out;
  const bool fused = graph[id].is("fused");
  for (ir::ValueId v : group.node().outputs)
    out.push_back(position(fused ? group.graph->outputs : graph[id].outputs, v));
  if (fused) out[0] = static_cast<int>(group.output);
  return out;
}

std::string refuse_forward(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  const Group group = parse_group(graph, id);
  if (!group.reason.empty()) return group.reason;
  if (!group.node().is("batch_norm_train")) return "is not around a batch norm in training";
  for (const GroupOperand& o : group.operands)
    if (o.input < 0 || o.reshaped) return "needs operands that come from outside the group as they are";
  auto type = [&](size_t i) -> const ir::Type& {
    return input_type(graph, id, static_cast<size_t>(group.operands[i].input));
  };
  const ir::Type &x = type(0), &y = output_type(graph, id, group.output);
  if (std::string why = refuse_data(x); !why.empty()) return why;
  if (y.layout != x.layout || y.dtype != x.dtype) return "yields the type and layout of its data";
  for (size_t i = 1; i < 5; ++i)
    if (!elem_of(type(i).dtype)) return cat("needs f32, f16 or bf16, got ", name(type(i).dtype));
  if (type(1).dtype != type(2).dtype) return "needs scale and bias of one type";
  if (type(3).dtype != type(4).dtype) return "needs statistics of one type";
  return refuse_steps(group, graph, id, false);
}

std::unique_ptr<Kernel> prepare_forward(const Instance& instance, const device::Target& target) {
  const Group group = parse_group(instance.graph, instance.id, &instance);
  PELTON_CHECK(group.reason.empty(), group.reason);
  std::vector<size_t> in;
  for (const GroupOperand& o : group.operands) in.push_back(static_cast<size_t>(o.input));
  const std::vector<int> out = results_of(instance.graph, instance.id, group);
  const TensorSpec& x = instance.inputs[in[0]];
  if (x.count() == 0)
    fail(ErrorCode::bad_shape, cat("has no elements to make statistics of, got ", x.dims), "",
         "train on batches of one sample or more");
  BatchNorm g = sizes_of(x, instance.inputs[in[1]].dtype, target);
  g.statistic_type = elem(instance.inputs[in[3]].dtype);
  const ir::Node& n = group.node();
  g.eps = static_cast<float>(n.get_real("eps"));
  g.keep = static_cast<float>(n.get_real("momentum"));
  const StepsPlan steps = plan_steps(group, {}, instance, instance.outputs[group.output]);
  g.epilogue = steps.form;  // how the work is shared out depends on it
  const NormForm form = fastest_form(g, false, target);
  KernelNeeds needs;
  needs.scratch_bytes = form.scratch_bytes;
  return make_kernel(
      [g, form, in, out, steps](const RunArgs& args) {
        auto result = [&](size_t i) -> void* {
          return i < out.size() && out[i] >= 0 ? args.out[static_cast<size_t>(out[i])] : nullptr;
        };
        BatchNorm b = g;
        b.x = args.in[in[0]];
        b.scale = args.in[in[1]];
        b.bias = args.in[in[2]];
        b.old_mean = args.in[in[3]];
        b.old_var = args.in[in[4]];
        b.scratch = static_cast<double*>(args.scratch);
        b.epilogue = steps.bind(args);
        b.y = result(0);
        b.new_mean = result(1);
        b.new_var = result(2);
        b.batch_mean = static_cast<float*>(result(3));
        b.batch_rstd = static_cast<float*>(result(4));
        PELTON_CUDA(run_form(form, b, false, stream_of(args)));
      },
      std::move(needs));
}

// --- backward

struct Backward {
  std::string reason;
  const ir::Graph* graph = nullptr;  // that holds the node
  ir::NodeId main;
  // Indices in the outer node's inputs.
  int g = -1, x = -1, scale = -1, mean = -1, rstd = -1, bias = -1;
  std::vector<int> outputs;  // of the main node: index in the outer node's outputs, or -1
  BatchNorm::Gate gate = BatchNorm::open;
};

// Reads the body of a group of kind "batch_norm_backward" (passes/fuse_training.h).
class Reader {
 public:
  explicit Reader(const ir::Graph& body) : b_(body) {}

  Backward read() {
    for (ir::NodeId id : b_.order())
      if (b_[id].is("batch_norm_backward")) out_.main = id;
    if (!out_.main) return refuse("holds no gradient of a batch norm");
    out_.graph = &b_;
    const ir::Node& main = b_[out_.main];
    int* const operands[] = {&out_.g, &out_.x, &out_.scale, &out_.mean, &out_.rstd};
    for (size_t i = 1; i < 5; ++i) *operands[i] = input(main.inputs[i]);
    if (out_.x < 0 || out_.scale < 0 || out_.mean < 0 || out_.rstd < 0)
      return refuse("computes operands of its norm");
    taken_ = 1;
    ir::ValueId tested;
    if (!take_gate(main.inputs[0], tested)) return refuse("has another gate than an activation's");
    if (!take_norm(tested)) return refuse("tests something else than the norm's result");
    for (ir::ValueId v : main.outputs) out_.outputs.push_back(position(b_.outputs, v));
    size_t nodes = 0, results = 0;
    for (ir::NodeId id : b_.order()) nodes += !b_[id].is("constant");
    for (int o : out_.outputs) results += o >= 0;
    if (nodes != taken_ || results != b_.outputs.size())
      return refuse("computes something beside the gradient");
    return std::move(out_);
  }

 private:
  Backward refuse(std::string why) {
    out_.reason = std::move(why);
    return std::move(out_);
  }
  int input(ir::ValueId v) const { return position(b_.inputs, v); }
  // The node that makes v if it is an `op`; counts it.
  const ir::Node* take(ir::ValueId v, std::string_view op) {
    const ir::NodeId id = b_[v].producer;
    if (!id || !b_[id].is(op)) return nullptr;
    ++taken_;
    return &b_[id];
  }
  bool equals(ir::ValueId v, double value) const {
    const Tensor* t = b_.constant(v);
    return t && t->count() == 1 && t->get_double(0) == value;
  }
  // select(test(tested, bound), through, 0).
  bool take_select(ir::ValueId v, std::string_view test, double bound, ir::ValueId& tested,
                   ir::ValueId& through) {
    const ir::Node* select = take(v, "select");
    if (!select || !equals(select->inputs[2], 0)) return false;
    const ir::Node* compare = take(select->inputs[0], test);
    if (!compare || !equals(compare->inputs[1], bound)) return false;
    tested = compare->inputs[0];
    through = select->inputs[1];
    return true;
  }
  bool take_gate(ir::ValueId v, ir::ValueId& tested) {
    ir::ValueId through, inner;
    const size_t before = taken_;
    out_.gate = BatchNorm::positive;
    if (!take_select(v, "gt", 0, tested, through)) {
      taken_ = before;
      out_.gate = BatchNorm::to_six;
      ir::ValueId raised, again;
      if (!take_select(v, "le", 6, raised, inner) || !take_select(inner, "ge", 0, tested, through))
        return false;
      const ir::Node* relu = take(raised, "relu");
      if (!relu || relu->inputs[0] != tested) return false;
    }
    out_.g = input(through);
    return out_.g >= 0;
  }
  // v = per channel: a reshape of an input, perhaps through a cast.
  int take_channel(ir::ValueId v) {
    const ir::Node* reshape = take(v, "reshape");
    if (!reshape) return -1;
    v = reshape->inputs[0];
    if (input(v) < 0)
      if (const ir::Node* cast = take(v, "cast")) v = cast->inputs[0];
    return input(v);
  }
  // (x - mean) rstd scale + bias, between casts.
  bool take_norm(ir::ValueId v) {
    if (const ir::NodeId id = b_[v].producer; id && b_[id].is("cast")) v = take(v, "cast")->inputs[0];
    const ir::Node* add = take(v, "add");
    if (!add) return false;
    out_.bias = take_channel(add->inputs[1]);
    const ir::Node* scaled = take(add->inputs[0], "mul");
    if (!scaled || take_channel(scaled->inputs[1]) != out_.scale) return false;
    const ir::Node* divided = take(scaled->inputs[0], "mul");
    if (!divided || take_channel(divided->inputs[1]) != out_.rstd) return false;
    const ir::Node* centred = take(divided->inputs[0], "sub");
    if (!centred || take_channel(centred->inputs[1]) != out_.mean) return false;
    ir::ValueId x = centred->inputs[0];
    if (input(x) < 0)
      if (const ir::Node* cast = take(x, "cast")) x = cast->inputs[0];
    return out_.bias >= 0 && input(x) == out_.x;
  }

  const ir::Graph& b_;
  Backward out_;
  size_t taken_ = 0;
};

Backward backward_of(const ir::Graph& graph, ir::NodeId id) {
  const ir::Node& n = graph[id];
  if (n.is("fused")) {
    if (n.get_text("kind") != "batch_norm_backward") {
      Backward other;
      other.reason = "is another kind of group";
      return other;
    }
    return Reader(n.get_graph("body")).read();
  }
  Backward b;
  b.graph = &graph;
  b.main = id;
  b.g = 0;
  b.x = 1;
  b.scale = 2;
  b.mean = 3;
  b.rstd = 4;
  for (size_t i = 0; i < n.outputs.size(); ++i) b.outputs.push_back(static_cast<int>(i));
  return b;
}

std::string refuse_backward(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  const Backward b = backward_of(graph, id);
  if (!b.reason.empty()) return b.reason;
  auto type = [&](int i) -> const ir::Type& { return input_type(graph, id, static_cast<size_t>(i)); };
  const ir::Type& x = type(b.x);
  if (std::string why = refuse_data(x); !why.empty()) return why;
  if (type(b.g).dtype != x.dtype || type(b.g).layout != x.layout)
    return "needs a gradient of the type and layout of its data";
  if (!elem_of(type(b.scale).dtype)) return cat("needs f32, f16 or bf16, got ", name(type(b.scale).dtype));
  if (b.bias >= 0 && type(b.bias).dtype != type(b.scale).dtype) return "needs scale and bias of one type";
  if (b.outputs[0] < 0 || output_type(graph, id, static_cast<size_t>(b.outputs[0])).layout != x.layout)
    return "yields the layout of its data";
  return {};
}

std::unique_ptr<Kernel> prepare_backward(const Instance& instance, const device::Target& target) {
  const Backward where = backward_of(instance.graph, instance.id);
  PELTON_CHECK(where.reason.empty(), where.reason);
  const TensorSpec& x = instance.inputs[static_cast<size_t>(where.x)];
  BatchNorm g = sizes_of(x, instance.inputs[static_cast<size_t>(where.scale)].dtype, target);
  g.through = where.gate;
  const std::vector<int> out = where.outputs;
  if (x.count() == 0) {
    const auto bytes = static_cast<size_t>(g.c * elem_bytes(g.parameter_type));
    return make_kernel([bytes, out](const RunArgs& args) {
      for (size_t i = 1; i < out.size(); ++i)
        if (out[i] >= 0)
          PELTON_CUDA(cudaMemsetAsync(args.out[static_cast<size_t>(out[i])], 0, bytes, stream_of(args)));
    });
  }
  const NormForm form = fastest_form(g, true, target);
  KernelNeeds needs;
  needs.scratch_bytes = form.scratch_bytes;
  return make_kernel(
      [g, form, out, where](const RunArgs& args) {
        auto in = [&](int i) { return i < 0 ? nullptr : args.in[static_cast<size_t>(i)]; };
        auto result = [&](size_t i) -> void* {
          return i < out.size() && out[i] >= 0 ? args.out[static_cast<size_t>(out[i])] : nullptr;
        };
        BatchNorm b = g;
        b.g = in(where.g);
        b.x = in(where.x);
        b.scale = in(where.scale);
        b.bias = in(where.bias);
        b.mean = static_cast<const float*>(in(where.mean));
        b.rstd = static_cast<const float*>(in(where.rstd));
        b.scratch = static_cast<double*>(args.scratch);
        b.dx = result(0);
        b.dscale = result(1);
        b.dbias = result(2);
        PELTON_CUDA(run_form(form, b, true, stream_of(args)));
      },
      std::move(needs));
}

}  // namespace

void add_batch_norm(Registry& registry) {
  registry.add({.name = "cuda.batch_norm_train",
                .ops = {"batch_norm_train", "fused"},
                .refuse = refuse_forward,
                .prepare = prepare_forward,
                .device = device::Kind::cuda});
  registry.add({.name = "cuda.batch_norm_backward",
                .ops = {"batch_norm_backward", "fused"},
                .refuse = refuse_backward,
                .prepare = prepare_backward,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
