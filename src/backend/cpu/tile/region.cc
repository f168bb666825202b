// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/tile/region.h"

#include <algorithm>

#include "backend/cpu/tile/lanes.h"
#include "base/cat.h"
#include "ir/op.h"
#include "ir/ops/composite.h"

namespace pelton::backend::cpu {
namespace {

constexpr std::string_view kPointwiseComposites[] = {"gelu",       "silu",  "hard_sigmoid", "hard_swish",
                                                     "leaky_relu", "elu",   "selu",         "celu",
                                                     "mish",       "prelu", "softsign",     "clamp"};
template <size_t N>
bool among(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

class Analyser {
 public:
  explicit Analyser(const Region& region) : r_(region), g_(region.graph) {
    a_.places.resize(g_.value_count());
  }
  Analysis run() {
    for (ir::ValueId v : r_.inputs)
      if (v) a_.places[v.index] = {Place::source, g_.type(v).shape};
    find_space();
    for (ir::NodeId id : r_.nodes) {
      if (!a_.reason.empty()) return std::move(a_);
      if (Role role = cpu::role(g_[id]); role == Role::none)
        refuse(id, "is not for tile programs");
      else if (types_fit(id))
        place(id, role);
    }
    for (ir::ValueId v : r_.outputs) check_output(v);
    check_layouts();
    return std::move(a_);
  }

 private:
  void refuse(ir::NodeId id, std::string why) {
    if (a_.reason.empty()) a_.reason = cat(g_.describe(id), " ", why);
  }
  // The operand of the first reduction, else the first output.
  void find_space() {
    for (ir::NodeId id : r_.nodes)
      if (Role role = cpu::role(g_[id]); role == Role::reduce || role == Role::row_norm) {
        a_.space = g_.type(g_[id].inputs[0]).shape;
        a_.axes = reduced_axes(g_[id], static_cast<int64_t>(a_.space.size()));
        return;
      }
    a_.space = g_.type(r_.outputs[0]).shape;
  }
  bool types_fit(ir::NodeId id) {
    const ir::Node& n = g_[id];
    auto fits = [&](ir::ValueId v) {
      const ir::Type& t = g_.type(v);
      if (t.is_tensor() && t.ranked && has_lane(t.dtype)) return true;
      refuse(id, cat("works on ", t.str()));
      return false;
    };
    for (ir::ValueId v : n.inputs)
      if (v && !fits(v)) return false;
    for (ir::ValueId v : n.outputs)
      if (!fits(v)) return false;
    if (n.op->scalar && !n.is("select") && !scalar_fits(id)) return false;
    const Role role = cpu::role(n);
    if (role == Role::channelwise) return channelwise_fits(id);
    const bool f32_only =
        role == Role::row_norm || role == Role::reduce || n.op->family != ir::Family::pointwise;
    if (f32_only && role != Role::constant && role != Role::cast && role != Role::broadcast &&
        role != Role::reshape)
      if (Lane lane = lane_of(g_.type(n.inputs[0]).dtype); lane != Lane::f32) {
        refuse(id, cat("needs f32, f16 or bf16, got ", name(g_.type(n.inputs[0]).dtype)));
        return false;
      }
    return true;
  }
  // Operands of one type, for which the op has a scalar function.
  bool scalar_fits(ir::NodeId id) {
    const ir::Node& n = g_[id];
    const DType dtype = g_.type(n.inputs[0]).dtype;
    const ir::ScalarDef& def = *n.op->scalar;
    for (ir::ValueId v : n.inputs)
      if (v && lane_of(g_.type(v).dtype) != lane_of(dtype)) {
        refuse(id, cat("mixes ", name(dtype), " and ", name(g_.type(v).dtype)));
        return false;
      }
    const bool has = is_float(dtype)           ? def.real != nullptr
                     : dtype == DType::boolean ? def.boolean != nullptr
                     : is_unsigned_int(dtype)  ? def.uint != nullptr
                                               : def.sint != nullptr;
    if (!has) refuse(id, cat("has no function of ", name(dtype)));
    return has;
  }
  bool channelwise_fits(ir::NodeId id) {
    const ir::Node& n = g_[id];
    const DType scale = g_.type(n.inputs[1]).dtype, data = g_.type(n.inputs[0]).dtype;
    if (lane_of(scale) != Lane::f32 || lane_of(data) == Lane::f64)
      refuse(id, cat("needs f32, f16 or bf16 parameters, got ", name(scale)));
    else if (n.op->find_attr("block") && n.get_int("block") != 0)
      refuse(id, "has a scale a block");
    return a_.reason.empty();
  }
  const Place& of(ir::ValueId v) const { return a_.places[v.index]; }
  void set(ir::ValueId v, Place::Kind kind) { a_.places[v.index] = {kind, g_.type(v).shape}; }

  void place(ir::NodeId id, Role role) {
    const ir::Node& n = g_[id];
    const Shape& shape = g_.type(n.outputs[0]).shape;
    const auto rank = a_.space.size();
    switch (role) {
      case Role::constant:
        return set(n.outputs[0], Place::source);
      case Role::reshape:
        return place_reshape(id);
      case Role::channelwise: {
        const Place::Kind kind = of(n.inputs[0]).kind;
        if (kind == Place::row || kind == Place::squeezed || shape.size() != rank)
          return refuse(id, "works on a reduced value");
        for (size_t i = 1; i < n.inputs.size(); ++i)
          if (n.inputs[i] && of(n.inputs[i]).kind != Place::source)
            return refuse(id, "has computed parameters");
        return set(n.outputs[0], Place::full);
      }
      case Role::reduce:
      case Role::row_norm: {
        const Place& x = of(n.inputs[0]);
        if (x.kind == Place::row || x.kind == Place::squeezed || x.shape != a_.space)
          return refuse(id, cat("reduces ", cat(x.shape), " in a loop over ", cat(a_.space)));
        if (reduced_axes(n, static_cast<int64_t>(rank)) != a_.axes)
          return refuse(id, "reduces other axes than the group");
        if (a_.axes.empty()) return refuse(id, "reduces no axis");
        if (role == Role::reduce)
          return set(n.outputs[0], n.get_bool("keep_dims") ? Place::row : Place::squeezed);
        set(n.outputs[0], Place::full);
        for (size_t i = 1; i < n.outputs.size(); ++i) set(n.outputs[i], Place::row);
        for (size_t i = 1; i < n.inputs.size(); ++i)
          if (n.inputs[i] && of(n.inputs[i]).kind != Place::source)
            return refuse(id, "has a computed scale or bias");
        return;
      }
      default:
        break;
    }
    bool any_full = false, any_row = false, any_squeezed = false;
    for (ir::ValueId v : n.inputs)
      if (v) {
        any_full |= of(v).kind == Place::full;
        any_row |= of(v).kind == Place::row;
        any_squeezed |= of(v).kind == Place::squeezed;
      }
    if (any_squeezed && (any_full || any_row)) return refuse(id, "mixes kept and dropped axes");
    // Values of rows only stay values of rows.
    if (any_squeezed) {
      if (shape.size() != rank - a_.axes.size()) return refuse(id, "broadcasts a reduced value to more dims");
      return set(n.outputs[0], Place::squeezed);
    }
    if (any_row && !any_full && is_row(shape)) return set(n.outputs[0], Place::row);
    if (shape.size() > rank) return refuse(id, cat("has more dims than the loop over ", cat(a_.space)));
    set(n.outputs[0], Place::full);
  }
  // The shape has size 1 on every reduced axis of the space.
  bool is_row(const Shape& shape) const {
    if (shape.size() != a_.space.size()) return false;
    return std::all_of(a_.axes.begin(), a_.axes.end(),
                       [&](int64_t axis) { return shape[static_cast<size_t>(axis)] == Dim(1); });
  }
  void place_reshape(ir::NodeId id) {
    const ir::Node& n = g_[id];
    const Place& x = of(n.inputs[0]);
    const Shape& to = g_.type(n.outputs[0]).shape;
    if (x.kind == Place::source) {
      if (!g_.type(n.inputs[0]).layout.is_plain()) return refuse(id, "re-shapes a tensor that is not plain");
      return set(n.outputs[0], Place::source);
    }
    if (x.kind == Place::full) {
      if (x.shape == to) return set(n.outputs[0], Place::full);
      return refuse(id, "re-shapes a computed value");
    }
    if (is_row(to)) return set(n.outputs[0], Place::row);
    if (to.size() == a_.space.size() - a_.axes.size()) return set(n.outputs[0], Place::squeezed);
    refuse(id, "re-shapes a reduced value");
  }
  void check_output(ir::ValueId v) {
    if (!a_.reason.empty()) return;
    const Place& p = of(v);
    if (p.kind == Place::source)
      a_.reason = cat("result ", g_.label(v), " is only a view");
    else if (p.kind == Place::full && p.shape != a_.space)
      a_.reason = cat("result ", g_.label(v), " of shape ", cat(p.shape), " in a loop over ", cat(a_.space));
  }

  // One layout for every full result. Blocked tensors need whole blocks, so that no padding is read or
  // written.
  void check_layouts() {
    if (!a_.reason.empty()) return;
    ir::Layout layout;
    for (ir::ValueId v : r_.outputs)
      if (of(v).kind == Place::full) layout = g_.type(v).layout;
    auto check = [&](ir::ValueId v) {
      const ir::Layout& l = g_.type(v).layout;
      if (l.is_plain()) return;
      if (g_.type(v).rank() != static_cast<int64_t>(a_.space.size()))
        a_.reason = cat("operand ", g_.label(v), " has a layout but fewer dims");
      if (l.kind != ir::Layout::Kind::blocked) return;
      if (!(l == layout))
        a_.reason = cat("operand ", g_.label(v), " is blocked ", l.str(), ", the result is not");
      else if (divisible_by(a_.space[1], l.block, g_.symbols->ranges) != Tri::yes)
        a_.reason = cat("needs channels divisible by ", int{l.block}, ", got ", a_.space[1].str());
    };
    for (ir::ValueId v : r_.inputs)
      if (v) check(v);
    for (ir::ValueId v : r_.outputs) {
      check(v);
      if (of(v).kind == Place::full && !(g_.type(v).layout == layout)) a_.reason = "results differ in layout";
    }
  }

  const Region& r_;
  const ir::Graph& g_;
  Analysis a_;
};

}  // namespace

Analysis analyse(const Region& region) {
  return Analyser(region).run();
}

Region region_of(const ir::Graph& graph, ir::NodeId node) {
  const ir::Node& n = graph[node];
  if (!n.is("fused")) return {graph, {node}, n.inputs, n.outputs};
  const ir::Graph& body = n.get_graph("body");
  return {body, body.order(), body.inputs, body.outputs};
}

Role role(const ir::Node& n) {
  const std::string_view op = n.op->name;
  if (op == "constant") return Role::constant;
  if (op == "cast") return Role::cast;
  if (op == "broadcast_to") return Role::broadcast;
  if (op == "reshape") return Role::reshape;
  if (n.op->scalar || among(op, kPointwiseComposites)) return Role::pointwise;
  if (op == "batch_norm" || op == "quantize" || op == "dequantize" || op == "requantize")
    return Role::channelwise;
  static constexpr std::string_view reductions[] = {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min",
                                                    "reduce_prod"};
  if (among(op, reductions)) return Role::reduce;
  static constexpr std::string_view norms[] = {"softmax", "log_softmax", "layer_norm", "rms_norm"};
  if (among(op, norms)) return Role::row_norm;
  return Role::none;
}

int64_t parameter_axis(const ir::Node& n, int64_t rank) {
  if (n.is("batch_norm")) return 1;
  return ir::wrap_axis(n.get_int("axis"), rank);
}

ir::Ints reduced_axes(const ir::Node& n, int64_t rank) {
  if (role(n) == Role::reduce) {
    ir::Ints axes = n.get_ints("axes");
    for (int64_t& a : axes) a += a < 0 ? rank : 0;
    std::sort(axes.begin(), axes.end());
    return axes;
  }
  int64_t axis = ir::wrap_axis(n.get_int("axis"), rank);
  if (n.is("softmax") || n.is("log_softmax")) return {axis};
  ir::Ints axes;
  for (; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

}  // namespace pelton::backend::cpu
