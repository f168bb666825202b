// SPDX-License-Identifier: Apache-2.0
#include "backend/group.h"

#include <algorithm>
#include <limits>

#include "ir/op.h"

namespace pelton::backend {
namespace {

constexpr std::string_view kContractions[] = {
    "conv", "conv_transpose", "conv_backward_data", "conv_backward_weights", "batch_norm_train", "matmul"};
constexpr std::string_view kEltwise[] = {
    "relu",       "sigmoid", "tanh",   "silu", "gelu", "hard_swish", "exp",  "abs",  "hard_sigmoid",
    "leaky_relu", "elu",     "square", "sqrt", "neg",  "round",      "mish", "clamp"};
constexpr std::string_view kBinary[] = {"add", "sub", "mul", "div", "max", "min", "prelu"};
template <size_t N>
bool among(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

class Parser {
 public:
  Parser(const ir::Graph& outer, ir::NodeId node, const Instance* instance, GroupExtras extras)
      : outer_(outer), outer_node_(outer[node]), instance_(instance), extras_(extras) {
    fused_ = outer_node_.is("fused");
    g_ = fused_ ? &outer_node_.get_graph("body") : &outer;
    out_.graph = g_;
    out_.main = fused_ ? find_main() : node;
  }
  Group run() {
    if (!out_.main) return refuse("has no contraction, or more than one");
    const ir::Node& main = (*g_)[out_.main];
    for (ir::ValueId v : main.inputs) out_.operands.push_back(operand(v));
    out_.result = g_->type(main.outputs[0]).dtype;
    if (!fused_) return std::move(out_);
    if (!find_output()) return refuse("yields more than one result");
    seen_ = 1;
    if (extras_.gate && !out_.operands[0].present()) take_gate(main.inputs[0]);
    for (const GroupOperand& o : out_.operands)
      if (!o.present() && &o - out_.operands.data() < 2)
        return refuse("computes an operand of its contraction");
    current_ = main.outputs[0];
    while (out_.reason.empty() && current_ != end()) advance();
    if (out_.reason.empty() && seen_ != computing_nodes())
      return refuse("computes something beside the chain");
    return std::move(out_);
  }

 private:
  Group refuse(std::string why) {
    out_.reason = std::move(why);
    return std::move(out_);
  }
  ir::ValueId end() const { return g_->outputs[out_.output]; }
  // The one result of the group that is not a further one of main.
  bool find_output() {
    size_t found = 0;
    for (size_t o = 0; o < g_->outputs.size(); ++o) {
      const ir::Value& v = (*g_)[g_->outputs[o]];
      if (v.producer == out_.main && v.result > 0) continue;
      out_.output = o;
      ++found;
    }
    return found == 1;
  }
  static bool is_view(const ir::Node& n) { return n.is("constant") || n.is("reshape"); }
  size_t computing_nodes() const {
    size_t count = 0;
    for (ir::NodeId id : g_->order()) count += !is_view((*g_)[id]);
    return count;
  }
  ir::NodeId find_main() const {
    ir::NodeId found;
    for (ir::NodeId id : g_->order())
      if (among((*g_)[id].op->name, kContractions)) {
        if (found) return {};
        found = id;
      }
    return found;
  }
  GroupOperand operand(ir::ValueId v) const {
    GroupOperand o;
    if (!v) return o;
    o.shape = g_->type(v).shape;
    while (fused_ && (*g_)[v].producer && (*g_)[(*g_)[v].producer].is("reshape")) {
      v = (*g_)[(*g_)[v].producer].inputs[0];
      o.reshaped = true;
    }
    const auto& inputs = fused_ ? g_->inputs : outer_node_.inputs;
    const auto at = std::find(inputs.begin(), inputs.end(), v);
    if (at != inputs.end()) {
      o.input = static_cast<int>(at - inputs.begin());
      const auto i = static_cast<size_t>(o.input);
      if (instance_ && i < instance_->constants.size() && instance_->constants[i].defined())
        o.constant = instance_->constants[i];
      else if (const Tensor* t = outer_.constant(outer_node_.inputs[i]))
        o.constant = *t;
    } else if (const Tensor* t = g_->constant(v)) {
      o.constant = *t;
    }
    return o;
  }
  static bool scalar(const GroupOperand& o, float& value) {
    if (!o.constant.defined() || o.constant.count() != 1 || o.constant.dtype() == DType::string) return false;
    value = static_cast<float>(o.constant.get_double(0));
    return true;
  }
  void stop(const ir::Node& n, std::string_view why) { out_.reason = cat(n.op->name, " ", why); }
  void linear(float a, float b) {
    GroupStep s;
    s.kind = GroupStep::linear;
    s.imm[0] = a;
    s.imm[1] = b;
    out_.steps.push_back(s);
  }
  void rounded(float zero) {
    GroupStep s;
    s.op = "round";
    out_.steps.push_back(s);
    if (zero != 0) linear(1, zero);
  }
  void binary(std::string_view op, GroupOperand o) {
    GroupStep s;
    s.kind = GroupStep::binary;
    s.op = op;
    s.operand = std::move(o);
    out_.steps.push_back(std::move(s));
  }

  // v = x * gate, gate[N, C, 1, ...].
  void take_gate(ir::ValueId v) {
    const ir::NodeId id = (*g_)[v].producer;
    if (!id || !(*g_)[id].is("mul") || (*g_)[v].uses.size() != 1 || g_->is_output(v)) return;
    const ir::Node& n = (*g_)[id];
    const Shape& shape = g_->type(v).shape;
    for (size_t side : {size_t{0}, size_t{1}}) {
      GroupOperand x = operand(n.inputs[side]), gate = operand(n.inputs[1 - side]);
      if (!x.present() || gate.input < 0 || x.shape != shape || gate.shape.size() != shape.size()) continue;
      bool fits = gate.shape[0] == shape[0] && gate.shape[1] == shape[1];
      for (size_t d = 2; d < shape.size(); ++d) fits &= gate.shape[d] == Dim(1);
      if (!fits) continue;
      out_.operands[0] = std::move(x);
      out_.gate = std::move(gate);
      ++seen_;
      return;
    }
  }

  // Takes the reader of the current value into the chain.
  void advance() {
    const auto& uses = (*g_)[current_].uses;
    if (uses.size() == 2 && take_swish(uses)) return;
    if (uses.size() != 1 || g_->is_output(current_)) {
      out_.reason = "a value inside the chain is read twice";
      return;
    }
    const ir::Node& n = (*g_)[uses[0].user];
    const std::string_view op = n.op->name;
    ++seen_;
    if (op == "cast")
      take_cast(n);
    else if (op == "quantize" || op == "requantize" || op == "dequantize")
      take_scaled(n);
    else if (among(op, kEltwise))
      take_eltwise(n);
    else if (among(op, kBinary))
      take_binary(n, uses[0].input);
    else
      stop(n, "is not a step that can follow a contraction");
    current_ = n.outputs[0];
    out_.result = g_->type(current_).dtype;
  }
  // x * sigmoid(x) spelled out.
  bool take_swish(const std::vector<ir::Use>& uses) {
    for (int k = 0; k < 2; ++k) {
      const ir::Node &s = (*g_)[uses[static_cast<size_t>(k)].user],
                     &m = (*g_)[uses[static_cast<size_t>(1 - k)].user];
      if (!s.is("sigmoid") || !m.is("mul") || (*g_)[s.outputs[0]].uses.size() != 1 ||
          (*g_)[s.outputs[0]].uses[0].user != uses[static_cast<size_t>(1 - k)].user)
        continue;
      GroupStep step;
      step.op = "silu";
      out_.steps.push_back(step);
      seen_ += 2;
      current_ = m.outputs[0];
      return true;
    }
    return false;
  }
  void take_cast(const ir::Node& n) {
    const DType from = g_->type(n.inputs[0]).dtype, to = n.get_dtype("to");
    auto real = [](DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16; };
    if (!real(to) || !(from == DType::i32 || real(from)))
      return stop(n, cat("from ", name(from), " to ", name(to), " is no rounding of a sum"));
    if (to != DType::f32 && n.outputs[0] != end()) stop(n, "rounds inside the chain");
  }
  void take_eltwise(const ir::Node& n) {
    GroupStep s;
    s.op = n.op->name;
    if (s.op == "clamp") {
      s.imm[0] = -std::numeric_limits<float>::infinity();
      s.imm[1] = std::numeric_limits<float>::infinity();
      for (size_t i = 1; i < n.inputs.size(); ++i)
        if (n.inputs[i] && !scalar(operand(n.inputs[i]), s.imm[i - 1]))
          return stop(n, "has limits that are not constant");
      if (n.inputs[0] != current_) return stop(n, "uses the value as a limit");
    } else if (s.op == "gelu") {
      if (n.get_bool("tanh")) s.op = "gelu_tanh";
    } else if (s.op == "hard_sigmoid") {
      s.imm[0] = static_cast<float>(n.get_real("alpha"));
      s.imm[1] = static_cast<float>(n.get_real("beta"));
    } else if (s.op == "leaky_relu" || s.op == "elu") {
      s.imm[0] = static_cast<float>(n.get_real("alpha"));
    }
    if (g_->type(n.inputs[0]).dtype == DType::i32) return stop(n, "works on integer sums");
    out_.steps.push_back(s);
  }
  void take_binary(const ir::Node& n, uint32_t side) {
    const std::string_view op = n.op->name;
    GroupOperand other = operand(n.inputs[1 - side]);
    if (!other.present()) return stop(n, "has an operand that is computed in the body");
    if (g_->type(n.outputs[0]).shape != g_->type(current_).shape) return stop(n, "broadcasts the result");
    if (g_->type(n.inputs[0]).dtype == DType::i32) {
      if (!extras_.sums || op != "add" || !out_.steps.empty() || out_.sums.present())
        return stop(n, "works on integer sums");
      out_.sums = std::move(other);
      return;
    }
    const bool commutes = op == "add" || op == "mul" || op == "max" || op == "min";
    float c;
    if (const bool constant = scalar(other, c); constant && op != "max" && op != "min" && op != "prelu") {
      if (op == "add") return linear(1, c);
      if (op == "mul") return linear(c, 0);
      if (op == "sub") return side == 0 ? linear(1, -c) : linear(-1, c);
      if (op == "div" && side == 0) return linear(1 / c, 0);
    }
    if (!commutes && side != 0) return stop(n, "takes the value as its second operand");
    binary(op, std::move(other));
  }
  void take_scaled(const ir::Node& n) {
    const DType from = g_->type(n.inputs[0]).dtype;
    GroupOperand scale = operand(n.inputs[1]);
    float zero = 0, value = 1;
    if (n.inputs.size() > 2 && n.inputs[2] && !scalar(operand(n.inputs[2]), zero))
      return stop(n, "has a zero point that is not one constant");
    if (n.inputs[0] != current_ || !scale.present()) return stop(n, "has a computed scale");
    if (n.op->find_attr("block") && n.get_int("block") != 0) return stop(n, "works in blocks");
    const bool one = scalar(scale, value);
    if (n.is("quantize")) {
      if (!one || from == DType::i32) return stop(n, "needs one constant scale and a real operand");
      // The quotient is rounded to f32, then to an integer; the zero point comes last.
      binary("div", std::move(scale));
      rounded(zero);
    } else {
      const bool dequantize = n.is("dequantize");
      if (dequantize && (from == DType::i8 || from == DType::u8) && one) {
        // What a quantize inside the chain left: whole numbers, still as reals.
        if (zero != 0) linear(1, -zero);
        return linear(value, 0);
      }
      if (from != DType::i32) return stop(n, cat("of ", name(from)));
      if (dequantize && zero != 0) return stop(n, "of sums with a zero point");
      if (one) {
        linear(value, 0);
      } else {
        // One scale a channel: it lies along the axis of the result.
        const auto rank = g_->type(current_).shape.size();
        int64_t axis = n.get_int("axis");
        if (axis < 0) axis += static_cast<int64_t>(rank);
        if (scale.shape.size() != 1) return stop(n, "has scales of more than one dim");
        Shape full(rank, Dim(1));
        full[static_cast<size_t>(axis)] = scale.shape[0];
        scale.shape = full;
        scale.reshaped = true;
        binary("mul", std::move(scale));
      }
      if (!dequantize) rounded(zero);
    }
    const DType to = g_->type(n.outputs[0]).dtype;
    if (to != DType::f32 && to != DType::i8 && to != DType::u8 && to != DType::bf16)
      return stop(n, cat("to ", name(to)));
    if (to == DType::f32 || n.outputs[0] == end()) return;
    // Sums of integers are finite, so that limits need not say what becomes of NaN.
    const bool sums = g_->type((*g_)[out_.main].outputs[0]).dtype == DType::i32;
    const auto& uses = (*g_)[n.outputs[0]].uses;
    if (!sums || to == DType::bf16 || uses.size() != 1 || !(*g_)[uses[0].user].is("dequantize"))
      return stop(n, "is followed by more steps");
    GroupStep limits;
    limits.op = "clamp";
    limits.imm[0] = to == DType::u8 ? 0.0f : -128.0f;
    limits.imm[1] = to == DType::u8 ? 255.0f : 127.0f;
    out_.steps.push_back(limits);
  }

  const ir::Graph& outer_;
  const ir::Node& outer_node_;
  const Instance* instance_;
  const GroupExtras extras_;
  const ir::Graph* g_ = nullptr;
  bool fused_ = false;
  ir::ValueId current_;
  size_t seen_ = 0;
  Group out_;
};

}  // namespace

Group parse_group(const ir::Graph& graph, ir::NodeId node, const Instance* instance, GroupExtras extras) {
  return Parser(graph, node, instance, extras).run();
}

bool is_bias(const GroupStep& step, size_t rank, size_t channel_axis) {
  if (step.kind != GroupStep::binary || step.op != "add") return false;
  const Shape& shape = step.operand.shape;
  if (shape.size() > rank) return false;
  const size_t skip = rank - shape.size();
  bool channels = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d + skip == channel_axis)
      channels = !(shape[d] == Dim(1));
    else if (!(shape[d] == Dim(1)))
      return false;
  }
  return channels;
}

Dims dims_of(const GroupOperand& o, const Instance& instance) {
  if (!o.reshaped && o.input >= 0) return instance.inputs[static_cast<size_t>(o.input)].dims;
  if (!o.reshaped) return o.constant.dims();
  return pelton::eval(o.shape, instance.symbols);
}

TensorSpec spec_of(const GroupOperand& o, DType dtype, const Instance& instance) {
  TensorSpec spec{dtype, dims_of(o, instance), {}};
  if (o.input >= 0) {
    const TensorSpec& given = instance.inputs[static_cast<size_t>(o.input)];
    spec.dtype = given.dtype;
    if (!o.reshaped) spec.layout = given.layout;
  } else {
    spec.dtype = o.constant.dtype();
  }
  return spec;
}

}  // namespace pelton::backend
