// SPDX-License-Identifier: Apache-2.0
#include "interp/accept.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include "interp/plain_sums.h"
#include "interp/stack.h"
#include "ir/builder.h"
#include "ir/numerics.h"

namespace pelton::interp {

using namespace ir;

namespace {

bool widens(DType t) {
  return t == DType::f32 || t == DType::f16 || t == DType::bf16;
}
Tensor converted(const Tensor& t, DType to) {
  return t.dtype() == to ? t : from_doubles(to, t.dims(), to_doubles(t));
}
// Every f32, f16 and bf16 tensor in v as f64, and back by the types of the graph.
HostValue wide(const HostValue& v) {
  HostValue out = v;
  if (v.kind == TypeKind::tensor && v.tensor.defined() && widens(v.tensor.dtype()))
    out.tensor = converted(v.tensor, DType::f64);
  for (HostValue& item : out.items) item = wide(item);
  return out;
}
HostValue narrow(const HostValue& v, const Type& type) {
  HostValue out = v;
  if (type.is_tensor() && v.tensor.defined() && widens(type.dtype))
    out.tensor = converted(v.tensor, type.dtype);
  if (type.element)
    for (HostValue& item : out.items) item = narrow(item, *type.element);
  return out;
}

// One value in its three evaluations.
struct Track {
  HostValue truth, forward, backward;
  bool rounded = false;
};
using Tracks = std::vector<Track>;

// f on the tensors of each evaluation.
template <class F>
Track each_evaluation(const Tracks& values, F&& f) {
  auto of = [&](HostValue Track::*which) {
    std::vector<Tensor> tensors;
    for (const Track& t : values) tensors.push_back((t.*which).tensor);
    return HostValue(f(tensors));
  };
  Track out{of(&Track::truth), of(&Track::forward), of(&Track::backward), false};
  for (const Track& t : values) out.rounded |= t.rounded;
  return out;
}

Graph in_primitives(const Graph& graph);

int64_t item(const Ints& values, size_t i) {
  return values.empty() ? 0 : values[i];
}

class Walk {
 public:
  Walk(const Graph& g, const Options& options) : g_(g), options_(options), symbols_(options.symbols) {}

  std::vector<Reference> run(const std::vector<HostValue>& inputs) {
    Tracks tracks;
    for (const HostValue& v : inputs) tracks.push_back({wide(v), v, v, false});
    evaluate(std::move(tracks));
    std::vector<Reference> out;
    for (ValueId v : g_.outputs) out.push_back(reference(v));
    return out;
  }

 private:
  Tracks evaluate(Tracks inputs) {
    tracks_.resize(g_.value_count());
    for (size_t i = 0; i < inputs.size(); ++i) {
      bind(g_.inputs[i], inputs[i].forward);
      tracks_[g_.inputs[i].index] = std::move(inputs[i]);
    }
    for (const Slot& s : g_.slots) {
      if (!s.initial.defined())
        fail(ErrorCode::usage, cat("state slot '", s.name, "' has no initial value to judge with"));
      tracks_[s.old_value.index] = {wide(s.initial), s.initial, s.initial, false};
    }
    for (NodeId id : g_.order()) step(id);
    Tracks out;
    for (ValueId v : g_.outputs) out.push_back(tracks_[v.index]);
    return out;
  }
  void bind(ValueId v, const HostValue& value) {
    if (value.kind == TypeKind::tensor && value.tensor.defined())
      bind_symbols(g_.type(v), value.tensor.dims(), symbols_, g_.label(v));
  }
  std::vector<HostValue> operands(NodeId id, HostValue Track::*which) const {
    std::vector<HostValue> out;
    for (ValueId v : g_[id].inputs) out.push_back(v ? tracks_[v.index].*which : HostValue());
    return out;
  }
  Options now() const {
    Options o;
    o.random = options_.random;
    o.symbols = symbols_;
    return o;
  }

  // Bodies as the graph around them: exact in f64, straightforward op by op. The straightforward evaluation
  // says which way control goes. Nothing where a body never runs, or what runs is none of these.
  std::optional<Tracks> controlled(NodeId id) {
    const Node& n = g_[id];
    Tracks in;
    for (ValueId v : n.inputs) in.push_back(v ? tracks_[v.index] : Track{});
    if (n.is("if")) {
      const bool then = in[0].forward.tensor.get_int(0) != 0;
      return inside(n.get_graph(then ? "then" : "else"), Tracks(in.begin() + 1, in.end()));
    }
    if (n.is("fused")) return inside(n.get_graph("body"), std::move(in));
    if (n.is("loop")) return loop(n, in);
    if (n.is("scan")) return scan(n, in);
    return std::nullopt;
  }
  Tracks inside(const Graph& body, Tracks inputs) const {
    const Graph primitives = in_primitives(body);
    Options options;
    options.random = options_.random;
    options.symbols = symbols_;
    return Walk(primitives, options).evaluate(std::move(inputs));
  }
  static Track constant(Tensor t) { return {HostValue(t), HostValue(t), HostValue(t), false}; }
  std::optional<Tracks> loop(const Node& n, const Tracks& in) const {
    const Graph& body = n.get_graph("body");
    const auto carried = static_cast<size_t>(n.get_int("carried"));
    const int64_t trips = n.inputs[0] ? in[0].forward.tensor.get_int(0) : INT64_MAX;
    bool go_on = !n.inputs[1] || in[1].forward.tensor.get_int(0) != 0;
    Tracks state(in.begin() + 2, in.end());  // what is carried, then what is captured
    std::vector<Tracks> stacks(n.outputs.size() - carried);
    for (int64_t i = 0; i < trips && go_on; ++i) {
      Tracks arguments{constant(Tensor::scalar<int64_t>(i)), constant(Tensor::scalar<bool>(true))};
      arguments.insert(arguments.end(), state.begin(), state.end());
      const Tracks results = inside(body, std::move(arguments));
      go_on = results[0].forward.tensor.get_int(0) != 0;
      for (size_t k = 0; k < carried; ++k) state[k] = results[1 + k];
      for (size_t k = 0; k < stacks.size(); ++k) stacks[k].push_back(results[1 + carried + k]);
    }
    state.resize(carried);
    for (const Tracks& parts : stacks) {
      if (parts.empty()) return std::nullopt;
      state.push_back(each_evaluation(parts, [](const auto& t) { return stacked(t, 0, false); }));
    }
    return state;
  }
  std::optional<Tracks> scan(const Node& n, const Tracks& in) const {
    const Graph& body = n.get_graph("body");
    const auto carried = static_cast<size_t>(n.get_int("carried")),
               scanned = static_cast<size_t>(n.get_int("scanned"));
    const Ints &axes = n.get_ints("axes"), &reverse = n.get_ints("reverse"),
               &out_axes = n.get_ints("out_axes"), &out_reverse = n.get_ints("out_reverse");
    auto axis_of = [&](size_t i) {
      const int64_t axis = item(axes, i);
      return axis < 0 ? axis + in[carried + i].forward.tensor.rank() : axis;
    };
    const int64_t count = in[carried].forward.tensor.dims()[static_cast<size_t>(axis_of(0))];
    Tracks state(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(carried));
    std::vector<Tracks> stacks(n.outputs.size() - carried);
    for (int64_t t = 0; t < count; ++t) {
      Tracks arguments = state;
      for (size_t i = 0; i < scanned; ++i)
        arguments.push_back(each_evaluation({in[carried + i]}, [&](const auto& x) {
          return slice_of(x[0], axis_of(i), item(reverse, i) ? count - 1 - t : t);
        }));
      arguments.insert(arguments.end(), in.begin() + static_cast<std::ptrdiff_t>(carried + scanned),
                       in.end());
      const Tracks results = inside(body, std::move(arguments));
      for (size_t k = 0; k < carried; ++k) state[k] = results[k];
      for (size_t k = 0; k < stacks.size(); ++k) stacks[k].push_back(results[carried + k]);
    }
    for (size_t k = 0; k < stacks.size(); ++k) {
      if (stacks[k].empty()) return std::nullopt;
      int64_t axis = item(out_axes, k);
      if (axis < 0) axis += stacks[k][0].forward.tensor.rank() + 1;
      state.push_back(each_evaluation(
          stacks[k], [&](const auto& t) { return stacked(t, axis, item(out_reverse, k) != 0); }));
    }
    return state;
  }

  void step(NodeId id) {
    const Node& n = g_[id];
    if (n.op->family == Family::control)
      if (std::optional<Tracks> results = controlled(id)) {
        for (size_t i = 0; i < n.outputs.size(); ++i) {
          bind(n.outputs[i], (*results)[i].forward);
          tracks_[n.outputs[i].index] = std::move((*results)[i]);
        }
        return;
      }
    std::vector<HostValue> forward = plain(id, operands(id, &Track::forward), Order::forward);
    for (size_t i = 0; i < n.outputs.size(); ++i) bind(n.outputs[i], forward[i]);
    std::vector<HostValue> backward = plain(id, operands(id, &Track::backward), Order::backward),
                           truth = exact(id, operands(id, &Track::truth));
    bool from_float = false, rounded = false;
    for (ValueId v : n.inputs) {
      if (!v) continue;
      rounded |= tracks_[v.index].rounded;
      from_float |= g_.type(v).is_tensor() && is_float(g_.type(v).dtype);
    }
    NumericClass kind = numerics(*n.op).kind;
    rounded |= from_float && (kind == NumericClass::quantize || kind == NumericClass::cast);
    for (size_t i = 0; i < n.outputs.size(); ++i)
      tracks_[n.outputs[i].index] = {std::move(truth[i]), std::move(forward[i]), std::move(backward[i]),
                                     rounded};
  }

  // In the types of the graph. Ops that round inside at places the reference does not (positions, products of
  // statistics) show what that may do when their operands move by one rounding.
  std::vector<HostValue> plain(NodeId id, std::vector<HostValue> in, Order order) {
    const Node& n = g_[id];
    if (n.outputs.size() == 1 && g_.type(n.outputs[0]).is_tensor()) {
      DType to = g_.type(n.outputs[0]).dtype;
      Arithmetic a = to == DType::f64 ? Arithmetic::f64 : Arithmetic::f32;
      if (auto t = plain_sums(g_, id, in, symbols_, to, a, order)) return {*t};
    }
    NumericClass kind = numerics(*n.op).kind;
    if (kind == NumericClass::sum || kind == NumericClass::normalizing || kind == NumericClass::blending)
      for (HostValue& v : in) shake(v, order);
    return run_node(g_, id, in, now());
  }
  static void shake(HostValue& v, Order order) {
    if (v.kind != TypeKind::tensor || !v.tensor.defined() || !is_float(v.tensor.dtype())) return;
    double unit = v.tensor.dtype() == DType::f64 ? 0x1p-53 : 0x1p-24;
    std::vector<double> x = to_doubles(v.tensor);
    for (size_t i = 0; i < x.size(); ++i) {
      bool up = ((i * 2654435761u) >> 7) % 2 == (order == Order::forward);
      x[i] *= up ? 1 + unit : 1 - unit;
    }
    // f16 and bf16 would round the change away: their ops compute in f32, but take operands of their own
    // type.
    v.tensor = from_doubles(v.tensor.dtype(), v.tensor.dims(), x);
  }

  // In f64. The node stands alone in a graph of wide types; where its rules refuse those (a type fixed by the
  // op, a body), its own types serve.
  std::vector<HostValue> exact(NodeId id, const std::vector<HostValue>& in) {
    const Node& n = g_[id];
    if (n.outputs.size() == 1 && g_.type(n.outputs[0]).is_tensor() &&
        g_.type(n.outputs[0]).dtype == DType::f64)
      if (auto t = plain_sums(g_, id, in, symbols_, DType::f64, Arithmetic::extended, Order::forward))
        return {*t};
    try {
      return alone(n, in);
    } catch (const Error&) {
      std::vector<HostValue> own = in;
      for (size_t i = 0; i < own.size(); ++i)
        if (n.inputs[i]) own[i] = narrow(own[i], g_.type(n.inputs[i]));
      std::vector<HostValue> out = run_node(g_, id, own, now());
      for (HostValue& v : out) v = wide(v);
      return out;
    }
  }
  std::vector<HostValue> alone(const Node& n, const std::vector<HostValue>& in) {
    Graph g("wide");
    std::vector<ValueId> values;
    for (size_t i = 0; i < in.size(); ++i) {
      if (!n.inputs[i]) {
        values.emplace_back();
        continue;
      }
      if (in[i].kind != TypeKind::tensor) fail(ErrorCode::bad_type, "not a tensor");
      values.push_back(g.add_input(Type::tensor(in[i].tensor.dtype(), to_shape(in[i].tensor.dims()))));
    }
    Attrs attrs = n.attrs;
    for (auto& [key, value] : attrs) {
      if (auto t = std::get_if<DType>(&value); t && widens(*t)) value = DType::f64;
      if (auto t = std::get_if<Tensor>(&value); t && widens(t->dtype())) value = converted(*t, DType::f64);
      if (auto s = std::get_if<Shape>(&value)) value = to_shape(pelton::eval(*s, symbols_));
      if (std::holds_alternative<GraphPtr>(value)) fail(ErrorCode::bad_type, "has a body");
    }
    NodeId id = g.add_node(*n.op, values, std::move(attrs), n.outputs.size());
    g.edit(id).stable_id = n.stable_id;
    infer(g, id);
    std::vector<HostValue> out = run_node(g, id, in, now());
    for (HostValue& v : out) v = wide(v);
    return out;
  }

  Reference reference(ValueId v) {
    const Track& t = tracks_[v.index];
    if (t.truth.kind != TypeKind::tensor)
      fail(ErrorCode::bad_type, cat("output ", g_.label(v), " is no tensor and cannot be judged"));
    Reference r{g_.type(v).dtype, t.truth.tensor, t.forward.tensor, 0, t.rounded};
    if (r.type == DType::string) return r;
    for (const Tensor* plain : {&t.forward.tensor, &t.backward.tensor}) {
      if (plain->dims() != r.truth.dims()) continue;  // a size that depends on rounded values
      for (int64_t i = 0; i < r.truth.count(); ++i) {
        double e = std::fabs(plain->get_double(i) - r.truth.get_double(i));
        if (std::isfinite(e)) r.error = std::max(r.error, e);
      }
    }
    return r;
  }

  const Graph& g_;
  const Options& options_;
  SymbolValues symbols_;
  std::vector<Track> tracks_;
};

// The composites of a copy in primitives, whose roundings are those of a straightforward evaluation.
Graph in_primitives(const Graph& graph) {
  Graph g = graph;
  for (bool again = true; again;) {
    again = false;
    for (NodeId id : std::vector<NodeId>(g.order()))
      if (g[id].alive) again |= expand(g, id);
  }
  return g;
}

}  // namespace

std::vector<Reference> references(const Graph& graph, const std::vector<HostValue>& inputs,
                                  const Options& options) {
  run(graph, inputs, {}, options);  // checks the inputs, and says what is wrong in the words of a run
  return Walk(in_primitives(graph), options).run(inputs);
}

Acceptance judge(const Reference& r, const Tensor& result) {
  if (result.dtype() != r.type || result.dims() != r.plain.dims()) {
    Acceptance a;
    a.accepted = false;
    a.reason = cat("got ", result.str(), ", expected ", r.plain.str());
    return a;
  }
  // A size that depends on rounded values: nothing but the straightforward evaluation compares.
  const Tensor& truth = r.truth.dims() == r.plain.dims() ? r.truth : r.plain;
  if (is_float(r.type) || r.type == DType::string) return accept(result, truth, r.plain, r.error);
  Acceptance a;
  a.allowed = r.rounded ? 1 : 0;
  for (int64_t i = 0; i < result.count(); ++i) {
    int64_t got = result.get_int(i);
    if (got == truth.get_int(i) || got == r.plain.get_int(i)) continue;
    double off = std::fabs(static_cast<double>(got) - static_cast<double>(truth.get_int(i)));
    if (off <= a.allowed || off <= a.error) continue;
    a.accepted = false;
    a.error = off;
    a.worst = i;
    a.reason = cat("element ", i, " is ", got, ", expected ", truth.get_int(i));
  }
  return a;
}

}  // namespace pelton::interp
