// SPDX-License-Identifier: Apache-2.0
// Region to program: one pass over the nodes that emits steps, then registers get places in tile memory.
#include <algorithm>
#include <limits>
#include <map>

#include "backend/cpu/support.h"
#include "backend/cpu/tile/nest.h"
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

Code f32_code(std::string_view op) {
  for (const OpCode& row : kF32Codes)
    if (row.op == op) return row.code;
  return Code::none;
}

class Compiler {
 public:
  Compiler(const Region& region, const Instance& instance, const device::Target& target)
      : r_(region), g_(region.graph), instance_(instance), target_(target), analysis_(analyse(region)) {
    PELTON_CHECK(analysis_.reason.empty(), analysis_.reason);
    space_ = concrete(analysis_.space);
    p_.has_rows = !analysis_.axes.empty();
    ir::Layout layout;
    for (size_t i = 0; i < r_.outputs.size(); ++i)
      if (place(r_.outputs[i]).kind == Place::full) layout = instance.outputs[i].layout;
    loops_ = loops_of(space_, layout, analysis_.axes);
    reg_.assign(g_.value_count(), -1);
  }

  Program run() {
    for (size_t i = 0; i < r_.inputs.size(); ++i)
      if (r_.inputs[i]) input_of_.emplace(r_.inputs[i].index, static_cast<int>(i));
    for (ir::NodeId id : r_.nodes) emit(id);
    std::vector<int> results;
    for (ir::ValueId v : r_.outputs)
      if (place(v).kind != Place::source && reg_[v.index] >= 0) results.push_back(reg_[v.index]);
    fuse_pairs(p_, results, target_.isa);
    for (size_t i = 0; i < r_.outputs.size(); ++i) add_sink(i);
    build_nest();
    assign_slots();
    return std::move(p_);
  }

 private:
  const Place& place(ir::ValueId v) const { return analysis_.places[v.index]; }
  Dims concrete(const Shape& shape) const { return pelton::eval(shape, instance_.symbols); }
  DType dtype(ir::ValueId v) const { return g_.type(v).dtype; }

  // Dims of a source aligned with the space: `shape` right-aligned, or with the reduced axes put back.
  Dims aligned(const Dims& dims, bool squeezed) const {
    Dims out(space_.size(), 1);
    if (!squeezed) {
      std::copy(dims.begin(), dims.end(), out.end() - static_cast<int64_t>(dims.size()));
      return out;
    }
    size_t from = dims.size();
    for (size_t a = space_.size(); a-- > 0 && from > 0;)
      if (std::find(analysis_.axes.begin(), analysis_.axes.end(), static_cast<int64_t>(a)) ==
          analysis_.axes.end())
        out[a] = dims[--from];
    return out;
  }
  // The register of an operand; for inputs and constants one that reads it as the user aligns it: at the
  // right, without the reduced axes (squeezed), or a vector along `axis`.
  int use(ir::ValueId v, bool squeezed = false, int64_t axis = -1) {
    if (place(v).kind != Place::source) return reg_[v.index];
    // Through reshapes to the bytes.
    ir::ValueId bytes = v;
    while (!input_of_.count(bytes.index) && role(g_[g_[bytes].producer]) == Role::reshape)
      bytes = g_[g_[bytes].producer].inputs[0];
    Tensor constant;
    int input = -1;
    ir::Layout layout;
    Dims dims;
    if (auto it = input_of_.find(bytes.index); it != input_of_.end()) {
      input = it->second;
      const TensorSpec& spec = instance_.inputs[static_cast<size_t>(input)];
      layout = spec.layout;
      dims = v == bytes ? spec.dims : concrete(place(v).shape);
      constant = static_cast<size_t>(input) < instance_.constants.size()
                     ? instance_.constants[static_cast<size_t>(input)]
                     : Tensor();
    } else {
      constant = g_[g_[bytes].producer].get_tensor("value");
      dims = concrete(place(v).shape);
    }
    const Lane lane = lane_of(dtype(v));
    if (constant.defined() && constant.count() == 1 && lane != Lane::i64)
      return constant_register(lane, constant.get_double(0));
    Dims full(space_.size(), 1);  // one value lies along no axis, whatever its rank
    if (const int64_t count = element_count(dims); count != 1 && axis >= 0)
      full[static_cast<size_t>(axis)] = count;
    else if (count != 1)
      full = aligned(dims, squeezed);
    auto key = std::make_pair(bytes.index, full);
    if (auto it = source_regs_.find(key); it != source_regs_.end()) return it->second;
    Source s;
    s.input = input;
    if (input < 0) s.constant = constant;
    s.dtype = dtype(v);
    s.load = load_function(s.dtype, target_.isa);
    s.outer = strides_of(loops_, full, layout);  // split by build_nest
    p_.sources.push_back(std::move(s));
    Register r;
    r.kind = Register::source;
    r.lane = lane;
    r.index = static_cast<int>(p_.sources.size()) - 1;
    r.one = p_.has_rows && inner_is_one(full);
    p_.registers.push_back(r);
    return source_regs_[key] = static_cast<int>(p_.registers.size()) - 1;
  }
  bool inner_is_one(const Dims& full) const {
    return std::all_of(analysis_.axes.begin(), analysis_.axes.end(),
                       [&](int64_t a) { return full[static_cast<size_t>(a)] == 1; });
  }
  int constant_register(Lane lane, double value) {
    Register r;
    r.kind = Register::constant;
    r.lane = lane;
    r.one = true;
    r.value = value;
    p_.registers.push_back(r);
    return static_cast<int>(p_.registers.size()) - 1;
  }
  int new_register(Lane lane, bool one) {
    Register r;
    r.lane = lane;
    r.one = one;
    p_.registers.push_back(r);
    return static_cast<int>(p_.registers.size()) - 1;
  }

  // Appends a step whose result is one value if all its operands are (or `reduces`).
  int step(StepFunction f, Lane result, std::initializer_list<int> in, float imm0 = 0, float imm1 = 0,
           std::shared_ptr<const WideInfo> wide = nullptr, bool reduces = false) {
    PELTON_CHECK(f);
    Instruction i;
    i.f = f;
    bool one = true;
    int k = 0;
    for (int r : in) {
      i.in[k++] = r;
      one &= p_.registers[static_cast<size_t>(r)].one;
    }
    i.one = one;
    i.imm[0] = imm0;
    i.imm[1] = imm1;
    i.wide = std::move(wide);
    i.out = new_register(result, one || reduces);
    p_.code.push_back(i);
    return i.out;
  }
  int f32(Code code, std::initializer_list<int> in, double imm0 = 0, double imm1 = 0) {
    const bool reduces = code == Code::reduce_sum || code == Code::reduce_max || code == Code::reduce_min ||
                         code == Code::reduce_prod || code == Code::reduce_squares;
    const int r =
        step(f32_step(code, target_.isa), code >= Code::eq && code <= Code::ge ? Lane::boolean : Lane::f32,
             in, static_cast<float>(imm0), static_cast<float>(imm1), nullptr, reduces);
    p_.code.back().code = code;
    return r;
  }
  int number(double v) { return constant_register(Lane::f32, v); }

  void emit(ir::NodeId id);
  void emit_pointwise(const ir::Node& n);
  void emit_cast(const ir::Node& n);
  void emit_norm(const ir::Node& n);
  void emit_channelwise(const ir::Node& n);
  int emit_composite(const ir::Node& n, int x);
  void set(ir::ValueId v, int r) { reg_[v.index] = r; }

  void add_sink(size_t output);
  void build_nest();
  void assign_slots();

  const Region& r_;
  const ir::Graph& g_;
  const Instance& instance_;
  const device::Target& target_;
  const Analysis analysis_;
  Dims space_;
  std::vector<Loop> loops_;
  std::vector<int> reg_;  // by value index
  std::map<uint32_t, int> input_of_;
  std::map<std::pair<uint32_t, Dims>, int> source_regs_;
  Program p_;
};

void Compiler::emit(ir::NodeId id) {
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

void Compiler::emit_cast(const ir::Node& n) {
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

int Compiler::emit_composite(const ir::Node& n, int x) {
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

void Compiler::emit_pointwise(const ir::Node& n) {
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
void Compiler::emit_channelwise(const ir::Node& n) {
  const int64_t axis = parameter_axis(n, static_cast<int64_t>(space_.size()));
  const int x = use(n.inputs[0]);
  auto parameter = [&](size_t i) { return use(n.inputs[i], false, axis); };
  auto convert = [&](int r, DType to) {
    auto info = std::make_shared<WideInfo>();
    info->lane = p_.registers[static_cast<size_t>(r)].lane;
    info->dtype = to;
    return info->lane == lane_of(to)
               ? r
               : step(convert_step(info->lane, lane_of(to)), lane_of(to), {r}, 0, 0, info);
  };
  const bool has_zero = n.inputs.size() > 2 && n.inputs[2];
  const DType to = dtype(n.outputs[0]);
  if (n.is("batch_norm")) {
    const int rstd = f32(Code::rsqrt, {f32(Code::add, {parameter(4), number(n.get_real("eps"))})});
    const int centred = f32(Code::sub, {x, parameter(3)});
    const int scaled = f32(Code::mul, {centred, f32(Code::mul, {rstd, parameter(1)})});
    return set(n.outputs[0], f32(Code::add, {scaled, parameter(2)}));
  }
  if (n.is("quantize") || n.is("requantize")) {
    const Code scale = n.is("quantize") ? Code::div : Code::mul;
    int y = f32(Code::round, {f32(scale, {convert(x, DType::f32), parameter(1)})});
    if (has_zero) y = f32(Code::add, {y, convert(parameter(2), DType::f32)});
    return set(n.outputs[0], convert(y, to));
  }
  int y = convert(x, DType::f32);
  if (has_zero) y = f32(Code::sub, {y, convert(parameter(2), DType::f32)});
  set(n.outputs[0], f32(Code::mul, {y, parameter(1)}));
}

void Compiler::emit_norm(const ir::Node& n) {
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

void Compiler::add_sink(size_t output) {
  const ir::ValueId v = r_.outputs[output];
  Sink s;
  s.reg = use(v);
  s.dtype = instance_.outputs[output].dtype;
  s.store = store_function(s.dtype, target_.isa);
  const Place::Kind kind = place(v).kind;
  s.row = kind == Place::row || kind == Place::squeezed;
  s.outer = strides_of(loops_, aligned(instance_.outputs[output].dims, kind == Place::squeezed),
                       instance_.outputs[output].layout);
  p_.sinks.push_back(std::move(s));
}

void Compiler::build_nest() {
  size_t split = loops_.size();
  if (p_.has_rows) {
    split = 0;
    while (split < loops_.size() &&
           std::find(analysis_.axes.begin(), analysis_.axes.end(),
                     static_cast<int64_t>(loops_[split].axis)) == analysis_.axes.end())
      ++split;
  }
  Dims sizes;
  for (const Loop& l : loops_) sizes.push_back(l.size);
  std::vector<std::vector<int64_t>*> all;
  for (Source& s : p_.sources) all.push_back(&s.outer);
  for (Sink& s : p_.sinks) all.push_back(&s.outer);
  auto cut = [&](size_t at) {
    p_.outer.assign(sizes.begin(), sizes.begin() + static_cast<int64_t>(at));
    p_.inner.assign(sizes.begin() + static_cast<int64_t>(at), sizes.end());
    auto move_tail = [&](std::vector<int64_t>& outer, std::vector<int64_t>& inner) {
      inner.assign(outer.begin() + static_cast<int64_t>(at), outer.end());
      outer.resize(at);
    };
    for (Source& s : p_.sources) move_tail(s.outer, s.inner);
    for (Sink& s : p_.sinks) move_tail(s.outer, s.inner);
  };
  if (!p_.has_rows) {
    collapse(sizes, all);
    // Short innermost runs are walked together as one gathered row.
    constexpr int64_t kShort = 192;
    split = sizes.size();
    int64_t run = 1;
    while (split > 0 && run < kShort) run *= sizes[--split];
    cut(split);
  } else {
    cut(split);
    collapse(p_.outer, all);
    std::vector<std::vector<int64_t>*> tails;
    for (Source& s : p_.sources) tails.push_back(&s.inner);
    for (Sink& s : p_.sinks) tails.push_back(&s.inner);
    collapse(p_.inner, tails);
  }
  p_.rows = element_count(p_.outer);
  p_.inner_count = element_count(p_.inner);
  for (Source& s : p_.sources) {
    s.one = std::all_of(s.inner.begin(), s.inner.end(), [](int64_t v) { return v == 0; });
    s.direct = is_direct(s.dtype) && (s.one || (s.inner.size() == 1 && s.inner[0] == 1));
  }
  for (Register& r : p_.registers)
    if (r.kind == Register::source) r.one = p_.sources[static_cast<size_t>(r.index)].one;
  if (p_.has_rows) return;
  // What is the same along the whole inner run is computed once a row.
  for (Instruction& i : p_.code) {
    i.one = true;
    for (int r : i.in)
      if (r >= 0) i.one &= p_.registers[static_cast<size_t>(r)].one;
    p_.registers[static_cast<size_t>(i.out)].one = i.one;
  }
}

// Buffers live from their first writer to their last reader. The register of a sink is the output itself if
// no later step reads a source (the plan may have put the output over an input).
void Compiler::assign_slots() {
  const auto n = p_.registers.size();
  std::vector<int> last(n, -1), first(n, -1);
  int last_source_read = -1;
  for (size_t k = 0; k < p_.code.size(); ++k) {
    const int at = static_cast<int>(k);
    for (int r : p_.code[k].in)
      if (r >= 0) {
        last[static_cast<size_t>(r)] = at;
        if (p_.registers[static_cast<size_t>(r)].kind == Register::source) last_source_read = at;
      }
    for (int r : {p_.code[k].out, p_.code[k].out2})
      if (r >= 0) first[static_cast<size_t>(r)] = at;
  }
  const int64_t bytes =
      p_.rows * p_.inner_count * static_cast<int64_t>(p_.sources.size() + p_.sinks.size()) * 4;
  p_.streams = bytes > target_.l2_bytes;
  std::vector<bool> outside(n, false);
  for (Sink& s : p_.sinks) {
    const auto r = static_cast<size_t>(s.reg);
    const Register& reg = p_.registers[r];
    last[r] = static_cast<int>(p_.code.size());
    s.direct = reg.kind == Register::buffer && !reg.one && !s.row && is_direct(s.dtype) && !outside[r] &&
               first[r] >= last_source_read && s.inner.size() <= 1 && (s.inner.empty() || s.inner[0] == 1);
    if (s.direct) outside[r] = true;
  }
  std::vector<int> free;
  for (size_t k = 0; k < p_.code.size(); ++k) {
    for (int r : {p_.code[k].out, p_.code[k].out2}) {
      if (r < 0) continue;
      Register& reg = p_.registers[static_cast<size_t>(r)];
      if (reg.one || outside[static_cast<size_t>(r)]) continue;
      if (free.empty()) free.push_back(p_.slots++);
      reg.slot = free.back();
      free.pop_back();
    }
    for (size_t r = 0; r < n; ++r)
      if (p_.registers[r].slot >= 0 &&
          (last[r] == static_cast<int>(k) || (last[r] < 0 && first[r] == static_cast<int>(k))))
        free.push_back(p_.registers[r].slot);
  }
  for (Source& s : p_.sources)
    if (!s.direct && !s.one) s.slot = p_.slots++;
  // Everything fits half of L1, with the runs read from memory counted as well.
  int widest = 1;
  for (const Register& r : p_.registers) widest = std::max(widest, lane_bytes(r.lane));
  if (p_.has_rows) {
    p_.tile = std::max<int64_t>(1, p_.inner_count);
  } else {
    const int64_t runs = p_.slots + static_cast<int64_t>(p_.sources.size() + p_.sinks.size());
    int64_t tile = target_.l1_bytes / 2 / (runs * widest);
    tile = std::clamp<int64_t>(tile / 64 * 64, 256, 8192);
    // One pass that keeps nothing: a stream is best not interrupted.
    if (p_.slots == 0)
      tile = std::max(tile, std::min<int64_t>(p_.inner_count / 64 / 64 * 64, int64_t{64} << 10));
    if (p_.inner_count < 2 * tile) tile = std::max<int64_t>(1, std::min(p_.inner_count, 2 * tile));
    p_.tile = tile;
  }
  p_.slot_bytes = align64(p_.tile * widest);
  const int64_t tiles = p_.tiles();
  int64_t work = 0;
  for (const Instruction& i : p_.code) p_.passes += !i.one;
  for (const Instruction& i : p_.code) work += i.one ? 0 : (i.wide && i.wide->scalar ? 16 : 2);
  p_.grain = grain_for(p_.rows * tiles, p_.tile * std::max<int64_t>(1, work));
  if (p_.slots * p_.slot_bytes > 64 << 10) p_.grain = std::max(p_.grain, (p_.rows * tiles + 15) / 16);
  p_.chunks = (p_.rows * tiles + p_.grain - 1) / p_.grain;
}

}  // namespace

Program compile_program(const Region& region, const Instance& instance, const device::Target& target) {
  return Compiler(region, instance, target).run();
}

}  // namespace pelton::backend::cpu
