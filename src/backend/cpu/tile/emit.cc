// SPDX-License-Identifier: Apache-2.0
// Nodes to steps.
#include <limits>

#include "backend/cpu/tile/compiler.h"
#include "ir/op.h"

namespace pelton::backend::cpu {

namespace {

struct OpCode {
  std::string_view op;
  Code code;
};
constexpr OpCode kF32Codes[] = {{"neg", Code::neg},
                                {"abs", Code::abs},
                                {"sign", Code::sign},
                                {"reciprocal", Code::reciprocal},
                                {"relu", Code::relu},
                                {"floor", Code::floor},
                                {"ceil", Code::ceil},
                                {"round", Code::round},
                                {"trunc", Code::trunc},
                                {"square", Code::square},
                                {"exp", Code::exp},
                                {"log", Code::log},
                                {"sqrt", Code::sqrt},
                                {"rsqrt", Code::rsqrt},
                                {"tanh", Code::tanh},
                                {"erf", Code::erf},
                                {"silu", Code::silu},
                                {"sigmoid", Code::sigmoid},
                                {"add", Code::add},
                                {"sub", Code::sub},
                                {"mul", Code::mul},
                                {"div", Code::div},
                                {"max", Code::max},
                                {"min", Code::min},
                                {"eq", Code::eq},
                                {"ne", Code::ne},
                                {"lt", Code::lt},
                                {"le", Code::le},
                                {"gt", Code::gt},
                                {"ge", Code::ge},
                                {"select", Code::select},
                                {"prelu", Code::prelu},
                                {"clamp", Code::clamp},
                                {"softsign", Code::softsign},
                                {"hard_swish", Code::hard_swish}};

}  // namespace

Code f32_code(std::string_view op) {
  for (const OpCode& row : kF32Codes)
    if (row.op == op) return row.code;
  return Code::none;
}

void TileCompiler::emit(ir::NodeId id) {
  const ir::Node& n = g_[id];
  switch (role(n)) {
    case Role::constant:
      return;
    case Role::cast:
      return emit_cast(n);
    case Role::reshape:
      if (place(n.outputs[0]).kind != Place::source) set(n.outputs[0], use(n.inputs[0]));
      return;
    case Role::broadcast:
      return set(n.outputs[0], use(n.inputs[0], place(n.outputs[0]).kind == Place::squeezed));
    case Role::reduce: {
      const int x = use(n.inputs[0]);
      const std::string_view op = n.op->name;
      Code code = op == "reduce_max"    ? Code::reduce_max
                  : op == "reduce_min"  ? Code::reduce_min
                  : op == "reduce_prod" ? Code::reduce_prod
                                        : Code::reduce_sum;
      int y = f32(code, {x});
      int64_t count = 1;
      for (int64_t a : analysis_.axes) count *= space_[static_cast<size_t>(a)];
      if (op == "reduce_mean") y = f32(Code::div, {y, number(static_cast<double>(count))});
      return set(n.outputs[0], y);
    }
    case Role::row_norm:
      return emit_norm(n);
    case Role::channelwise:
      return emit_channelwise(n);
    default:
      return emit_pointwise(n);
  }
}

void TileCompiler::emit_cast(const ir::Node& n) {
  const DType from = dtype(n.inputs[0]), to = n.get_dtype("to");
  int x = use(n.inputs[0], place(n.outputs[0]).kind == Place::squeezed);
  auto info = std::make_shared<WideInfo>();
  info->lane = lane_of(from);
  info->dtype = to;
  if (lane_of(from) != lane_of(to))
    x = step(convert_step(lane_of(from), lane_of(to)), lane_of(to), {x}, 0, 0, info);
  else if (lane_of(to) == Lane::i64 && bits(to) < 64 && (bits(to) < bits(from) || from != to))
    x = step(wrap_step, Lane::i64, {x}, 0, 0, info);
  // A result is rounded when it is stored; inside a group an explicit cast still rounds.
  const bool inside = !g_[n.outputs[0]].uses.empty() && instance_.node().is("fused");
  if (inside && to != from && (to == DType::bf16 || to == DType::f16))
    x = f32(to == DType::bf16 ? Code::round_bf16 : Code::round_f16, {x});
  set(n.outputs[0], x);
}

int TileCompiler::emit_composite(const ir::Node& n, int x) {
  const std::string_view op = n.op->name;
  if (op == "gelu") return f32(n.get_bool("tanh") ? Code::gelu_tanh : Code::gelu_erf, {x});
  if (op == "hard_sigmoid") return f32(Code::hard_sigmoid, {x}, n.get_real("alpha"), n.get_real("beta"));
  if (op == "leaky_relu") return f32(Code::leaky_relu, {x}, n.get_real("alpha"));
  if (op == "elu") return f32(Code::elu, {x}, n.get_real("alpha"), 1);
  if (op == "celu") return f32(Code::elu, {x}, n.get_real("alpha"), n.get_real("alpha"));
  if (op == "selu") {
    const double gamma = n.get_real("gamma");
    return f32(Code::mul, {f32(Code::elu, {x}, n.get_real("alpha"), 1), number(gamma)});
  }
  PELTON_CHECK(op == "mish", op);
  auto info = std::make_shared<WideInfo>();
  info->scalar = ir::op("softplus").scalar;
  info->arity = 1;
  const int soft = step(wide_step("softplus", Lane::f32), Lane::f32, {x}, 0, 0, info);
  return f32(Code::mul, {x, f32(Code::tanh, {soft})});
}

void TileCompiler::emit_pointwise(const ir::Node& n) {
  const bool squeezed = place(n.outputs[0]).kind == Place::squeezed;
  const bool selects = n.is("select");
  const DType type = dtype(n.inputs[selects ? 1 : 0]);
  const Lane lane = lane_of(type);
  std::vector<int> in;
  for (ir::ValueId v : n.inputs) in.push_back(v ? use(v, squeezed) : -1);
  if (n.is("clamp")) {
    in.resize(3, -1);
    const double infinity = std::numeric_limits<double>::infinity();
    if (in[1] < 0) in[1] = number(-infinity);
    if (in[2] < 0) in[2] = number(infinity);
  }
  Code code = lane == Lane::f32 ? f32_code(n.op->name) : Code::none;
  if (n.is("pow") && lane == Lane::f32 &&
      p_.registers[static_cast<size_t>(in[1])].kind == Register::constant &&
      p_.registers[static_cast<size_t>(in[1])].value == 2)
    return set(n.outputs[0], f32(Code::square, {in[0]}));
  int y;
  if (lane == Lane::f32 && code == Code::none && !n.op->scalar)
    y = emit_composite(n, in[0]);
  else if (selects)
    y = lane == Lane::f32 ? f32(Code::select, {in[0], in[1], in[2]})
                          : step(select_step(lane), lane, {in[0], in[1], in[2]});
  else if (code != Code::none)
    y = in.size() == 1   ? f32(code, {in[0]})
        : in.size() == 2 ? f32(code, {in[0], in[1]})
                         : f32(code, {in[0], in[1], in[2]});
  else {
    auto info = std::make_shared<WideInfo>();
    info->scalar = n.op->scalar;
    info->arity = static_cast<int>(in.size());
    info->lane = lane;
    info->dtype = type;
    const StepFunction f = wide_step(n.op->name, lane);
    const Lane result = n.op->scalar->yields_bool ? Lane::boolean : lane;
    y = in.size() == 1 ? step(f, result, {in[0]}, 0, 0, info) : step(f, result, {in[0], in[1]}, 0, 0, info);
    if (result == Lane::i64 && bits(type) < 64) y = step(wrap_step, Lane::i64, {y}, 0, 0, info);
  }
  set(n.outputs[0], y);
}

// f32 throughout: quotients and products are rounded to f32 before a rounding to integers.
void TileCompiler::emit_channelwise(const ir::Node& n) {
  const int64_t axis = parameter_axis(n, static_cast<int64_t>(space_.size()));
  auto parameter = [&](size_t i) { return use_real(n.inputs[i], axis); };
  const int x = use_real(n.inputs[0]);
  if (n.is("batch_norm")) {
    const int rstd = f32(Code::rsqrt, {f32(Code::add, {parameter(4), number(n.get_real("eps"))})});
    const int centred = f32(Code::sub, {x, parameter(3)});
    const int scaled = f32(Code::mul, {centred, f32(Code::mul, {rstd, parameter(1)})});
    return set(n.outputs[0], f32(Code::add, {scaled, parameter(2)}));
  }
  const int zero = n.inputs.size() > 2 && n.inputs[2] ? parameter(2) : number(0);
  if (n.is("quantize") || n.is("requantize")) {
    const DType to = dtype(n.outputs[0]);
    const int scaled = f32(n.is("quantize") ? Code::div : Code::mul, {x, parameter(1)});
    const int y = f32(Code::to_range, {scaled, zero}, lowest(to), highest(to));
    if (!store_whole(to, target_.isa)) return set(n.outputs[0], convert(y, to));
    whole_[n.outputs[0].index] = y;
    return;
  }
  set(n.outputs[0], f32(Code::mul, {f32(Code::sub, {x, zero}), parameter(1)}));
}

void TileCompiler::emit_norm(const ir::Node& n) {
  const int x = use(n.inputs[0]);
  int64_t count = 1;
  for (int64_t a : analysis_.axes) count *= space_[static_cast<size_t>(a)];
  if (n.is("softmax") || n.is("log_softmax")) {
    const int top = f32(Code::reduce_max, {x});
    Instruction e;
    e.f = f32_step(Code::exp_sum, target_.isa);
    e.in[0] = x;
    e.in[1] = top;
    e.out = new_register(Lane::f32, false);
    e.out2 = new_register(Lane::f32, true);
    const int values = e.out, sum = e.out2;
    p_.code.push_back(std::move(e));
    if (n.is("softmax")) return set(n.outputs[0], f32(Code::mul, {values, f32(Code::reciprocal, {sum})}));
    return set(n.outputs[0], f32(Code::sub, {f32(Code::sub, {x, top}), f32(Code::log, {sum})}));
  }
  const int size = number(static_cast<double>(count));
  const bool centred = n.is("layer_norm");
  const int mean = centred ? f32(Code::div, {f32(Code::reduce_sum, {x}), size}) : number(0);
  const int variance = f32(Code::div, {f32(Code::reduce_squares, {x, mean}), size});
  const int rstd = f32(Code::rsqrt, {f32(Code::add, {variance, number(n.get_real("eps"))})});
  auto vector = [&](size_t i, double otherwise) {
    return i < n.inputs.size() && n.inputs[i] ? use(n.inputs[i]) : number(otherwise);
  };
  const int scale = vector(1, 1), bias = centred ? vector(2, 0) : number(0);
  set(n.outputs[0], step(f32_step(Code::norm_affine, target_.isa), Lane::f32, {x, mean, rstd, scale, bias}));
  if (centred && n.outputs.size() > 1) set(n.outputs[1], mean);
  if (n.outputs.size() > (centred ? 2u : 1u)) set(n.outputs[centred ? 2 : 1], rstd);
}

}  // namespace pelton::backend::cpu
