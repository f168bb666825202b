// SPDX-License-Identifier: Apache-2.0
#include "interp/interpreter.h"

#include <set>

#include "base/memory_limit.h"
#include "ir/fact.h"
#include "ir/op.h"

namespace pelton::interp {

using namespace ir;

void bind_symbols(const Type& type, const Dims& dims, SymbolValues& symbols, std::string_view what) {
  if (!type.is_tensor() || !type.ranked) return;
  if (type.shape.size() != dims.size())
    fail(ErrorCode::bad_shape,
         cat("expected rank ", type.shape.size(), " (", type.str(), "), got shape ", dims),
         std::string(what));
  for (size_t i = 0; i < dims.size(); ++i)
    if (auto s = type.shape[i].as_symbol(); s && !symbols.count(*s)) symbols[*s] = dims[i];
  for (size_t i = 0; i < dims.size(); ++i) {
    std::set<std::string> names;
    type.shape[i].collect_symbols(names);
    bool known = true;
    for (const std::string& n : names) known &= symbols.count(n) != 0;
    if (!known) continue;
    if (int64_t want = type.shape[i].eval(symbols); want != dims[i])
      fail(ErrorCode::bad_shape,
           cat("expected size ", want, type.shape[i].is_const() ? "" : cat(" (", type.shape[i].str(), ")"),
               " along axis ", i, ", got shape ", dims),
           std::string(what));
  }
}

namespace {

class Run {
 public:
  Run(const Graph& graph, const Options& options) : g_(graph), options_(options), symbols_(options.symbols) {}

  Result execute(const std::vector<HostValue>& inputs, const std::vector<HostValue>& state) {
    if (inputs.size() != g_.inputs.size())
      fail(ErrorCode::usage,
           cat("graph '", g_.name, "' takes ", g_.inputs.size(), " inputs, got ", inputs.size()));
    values_.resize(g_.value_count());
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::string where = cat("input '", g_[g_.inputs[i]].name, "'");
      check(g_.type(g_.inputs[i]), inputs[i], where);
      values_[g_.inputs[i].index] = inputs[i];
    }
    require_checks(g_, symbols_);
    for (size_t i = 0; i < g_.slots.size(); ++i) {
      const Slot& s = g_.slots[i];
      HostValue v = i < state.size() ? state[i] : HostValue(initial(s));
      check(s.type, v, cat("state slot '", s.name, "'"));
      values_[s.old_value.index] = std::move(v);
    }
    remaining_ = std::vector<uint32_t>(g_.value_count(), 0);
    for (NodeId id : g_.order())
      for (ValueId v : g_[id].inputs)
        if (v) ++remaining_[v.index];
    for (ValueId v : g_.outputs) ++remaining_[v.index];
    for (const Slot& s : g_.slots)
      if (s.next) ++remaining_[s.next.index];

    for (NodeId id : g_.order()) step(id);
    Result result;
    for (ValueId v : g_.outputs) result.outputs.push_back(values_[v.index]);
    for (const Slot& s : g_.slots) result.next_state.push_back(s.next ? values_[s.next.index] : HostValue());
    return result;
  }

  std::vector<HostValue> evaluate(NodeId id, const std::vector<HostValue>& inputs) {
    const Node& n = g_[id];
    std::vector<HostValue> outputs(n.outputs.size());
    std::function<std::vector<HostValue>(const Graph&, std::vector<HostValue>)> nested =
        [&](const Graph& body, std::vector<HostValue> args) {
          Options inner;
          inner.random = options_.random;
          inner.symbols = symbols_;
          // What the body binds itself must not come from an earlier iteration.
          return Run(body, inner).execute(args, {}).outputs;
        };
    EvalContext context{g_, n, inputs, outputs, symbols_, options_.random, nested};
    if (!n.op->eval)
      fail(ErrorCode::unsupported_op, cat("op ", n.op->name, " has no reference function"), g_.describe(id));
    for (ValueId v : n.outputs) check_fits(v, id);
    try {
      n.op->eval(context);
    } catch (const Error& e) {
      if (e.where().empty()) throw Error(e.code(), e.message(), g_.describe(id), e.fix());
      throw;
    }
    return outputs;
  }

 private:
  // Evaluation lays out more than its results: sizes that no memory holds are refused before. A machine may
  // have more than its memory, by swapping.
  void check_fits(ValueId v, NodeId id) const {
    const Type& type = g_.type(v);
    static const int64_t memory = physical_memory_bytes();
    if (!type.is_tensor() || !type.ranked || type.dtype == DType::string || memory == 0) return;
    std::set<std::string> names;
    for (const Dim& d : type.shape) d.collect_symbols(names);
    for (const std::string& name : names)
      if (!symbols_.count(name)) return;
    const Dims dims = eval(type.shape, symbols_);
    if (const int64_t bytes = physical_bytes(type, dims); bytes / 4 > memory)
      fail(ErrorCode::out_of_memory,
           cat("a result of shape ", dims, " takes ", bytes, " bytes, there are ", memory, " of memory"),
           g_.describe(id), "use smaller inputs");
  }

  static Tensor initial(const Slot& s) {
    if (s.initial.defined()) return s.initial;
    auto dims = as_dims(s.type.shape);
    if (!dims)
      fail(ErrorCode::bad_shape, cat("state slot '", s.name, "' has no initial value and no fixed shape"));
    return Tensor::zeros(s.type.dtype, *dims);
  }

  void check(const Type& type, const HostValue& v, const std::string& where) {
    if (v.kind != type.kind) fail(ErrorCode::bad_type, cat("expected ", type.str()), where);
    if (!type.is_tensor()) return;
    if (!v.tensor.defined()) fail(ErrorCode::usage, "has no value", where);
    if (v.tensor.dtype() != type.dtype)
      fail(ErrorCode::bad_type, cat("expected ", type.str(), ", got ", v.tensor.str()), where);
    bind_symbols(type, v.tensor.dims(), symbols_, where);
  }

  void step(NodeId id) {
    const Node& n = g_[id];
    std::vector<HostValue> inputs;
    inputs.reserve(n.inputs.size());
    for (ValueId v : n.inputs) inputs.push_back(v ? values_[v.index] : HostValue());
    std::vector<HostValue> outputs = evaluate(id, inputs);
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const Type& t = g_.type(n.outputs[i]);
      if (t.is_tensor()) {
        PELTON_CHECK(outputs[i].tensor.defined(), g_.describe(id), " yielded no result ", i);
        PELTON_CHECK(outputs[i].tensor.dtype() == t.dtype, g_.describe(id), " yielded ",
                     outputs[i].tensor.str(), " for ", t.str());
        bind_symbols(t, outputs[i].tensor.dims(), symbols_, g_.describe(id));
      }
    }
    if (options_.observe) options_.observe(id, outputs);
    for (size_t i = 0; i < n.outputs.size(); ++i)
      if (remaining_[n.outputs[i].index]) values_[n.outputs[i].index] = std::move(outputs[i]);
    for (ValueId v : n.inputs)
      if (v && --remaining_[v.index] == 0) values_[v.index] = HostValue();
  }

  const Graph& g_;
  const Options& options_;
  SymbolValues symbols_;
  std::vector<HostValue> values_;
  std::vector<uint32_t> remaining_;
};

}  // namespace

Result run(const Graph& graph, const std::vector<HostValue>& inputs, const std::vector<HostValue>& state,
           const Options& options) {
  return Run(graph, options).execute(inputs, state);
}
std::vector<HostValue> run_node(const Graph& graph, NodeId node, const std::vector<HostValue>& inputs,
                                const Options& options) {
  return Run(graph, options).evaluate(node, inputs);
}

}  // namespace pelton::interp
