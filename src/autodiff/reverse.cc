// SPDX-License-Identifier: Apache-2.0
#include "autodiff/reverse.h"

#include <algorithm>

#include "autodiff/control.h"
#include "autodiff/path.h"
#include "ir/gradient.h"

namespace pelton::autodiff {

using namespace ir;

bool differentiable(const Type& type) {
  return type.is_tensor() && (type.dtype == DType::f64 || type.dtype == DType::f32 ||
                              type.dtype == DType::f16 || type.dtype == DType::bf16);
}

namespace {

class Sweep {
 public:
  Sweep(Graph& graph, std::span<const Seed> seeds, std::span<const ValueId> wrt,
        std::span<const ValueId> stop, size_t first)
      : g_(graph), seeds_(seeds), depends_(graph.value_count()), grads_(graph.value_count()) {
    mark(wrt, stop, first);
  }

  void run() {
    Builder b(g_);
    for (const Seed& s : seeds_)
      if (depends_[s.value.index]) accumulate(b, s.value, s.gradient);
    for (size_t i = nodes_.size(); i-- > 0;) step(nodes_[i]);
  }

  ValueId of(ValueId v) const { return v.index < grads_.size() ? grads_[v.index] : ValueId{}; }

 private:
  // nodes_: those that depend on `wrt` and that a seed depends on, in order.
  void mark(std::span<const ValueId> wrt, std::span<const ValueId> stop, size_t first) {
    std::vector<bool> stopped(g_.value_count());
    for (ValueId v : stop) stopped[v.index] = true;
    for (ValueId v : wrt) depends_[v.index] = true;
    std::vector<bool> needed(g_.value_count());
    for (const Seed& s : seeds_) needed[s.value.index] = true;
    const std::vector<NodeId>& order = g_.order();
    std::vector<NodeId> forward;
    for (size_t i = first; i < order.size(); ++i) {
      const Node& n = g_[order[i]];
      bool any = false;
      for (ValueId v : n.inputs) any |= v && depends_[v.index];
      if (!any) continue;
      forward.push_back(order[i]);
      for (ValueId v : n.outputs)
        if (carries(g_.type(v)) && !stopped[v.index]) depends_[v.index] = true;
    }
    for (size_t i = forward.size(); i-- > 0;) {
      const Node& n = g_[forward[i]];
      bool used = false;
      for (ValueId v : n.outputs) used |= needed[v.index] && depends_[v.index];
      if (!used) continue;
      nodes_.push_back(forward[i]);
      for (ValueId v : n.inputs)
        if (v && depends_[v.index]) needed[v.index] = true;
    }
    std::reverse(nodes_.begin(), nodes_.end());
  }
  // Sequences and optionals count as carriers, so that an op on them is an error rather than a zero.
  static bool carries(const Type& t) {
    if (t.is_tensor()) return differentiable(t);
    return t.element && carries(*t.element);
  }

  void accumulate(Builder& b, ValueId v, ValueId gradient) {
    if (v.index >= grads_.size()) return;
    ValueId& slot = grads_[v.index];
    slot = slot ? b.add(slot, gradient) : gradient;
  }

  void step(NodeId id) {
    std::vector<ValueId> result_grads;
    bool any = false;
    for (ValueId v : g_[id].outputs) {
      result_grads.push_back(of(v));
      any |= bool(result_grads.back());
    }
    if (!any) return;
    std::vector<bool> wanted;
    for (ValueId v : g_[id].inputs) wanted.push_back(v && depends_[v.index]);

    std::vector<ValueId> input_grads;
    try {
      input_grads = differentiate(id, result_grads, wanted);
    } catch (const Error& e) {
      std::string where = path_from_loss(g_, id, seeds_, nodes_);
      throw Error(e.code(), e.message(), e.where().empty() ? where : cat(e.where(), "; ", where), e.fix());
    }
    const Node n = g_[id];
    Builder b(g_);
    b.set_name(cat(n.name.empty() ? std::string(n.op->name) : n.name, "/grad"));
    for (size_t i = 0; i < n.inputs.size(); ++i)
      if (wanted[i] && input_grads[i]) accumulate(b, n.inputs[i], input_grads[i]);
  }

  std::vector<ValueId> differentiate(NodeId id, const std::vector<ValueId>& result_grads,
                                     const std::vector<bool>& wanted) {
    const OpDef& op = g_.op(id);
    if (op.gradient) {
      GradientContext c(g_, id, result_grads, wanted);
      op.gradient(c);
      if (!c.wants_decomposition()) return c.input_grads();
    }
    if (auto grads = differentiate_control(g_, id, result_grads, wanted)) return *grads;
    if (op.decompose) {
      if (auto grads = through_decomposition(id, result_grads, wanted)) return *grads;
    }
    fail(ErrorCode::unsupported_op, cat("op ", op.name, " cannot be differentiated"), g_.describe(id),
         "take its operands out of the gradient or replace it");
  }

  // Decomposes a copy of the node behind everything else and sweeps over that. What the copy computes again
  // and nothing reads is removed with the other dead nodes.
  std::optional<std::vector<ValueId>> through_decomposition(NodeId id,
                                                            const std::vector<ValueId>& result_grads,
                                                            const std::vector<bool>& wanted) {
    const Node n = g_[id];
    size_t first = g_.order().size();
    Builder b(g_);
    b.set_name(cat(n.name.empty() ? std::string(n.op->name) : n.name, "/grad"));
    std::vector<ValueId> results = n.op->decompose(b, n);
    if (results.empty()) return std::nullopt;
    std::vector<Seed> seeds;
    for (size_t i = 0; i < result_grads.size() && i < results.size(); ++i)
      if (result_grads[i] && results[i]) seeds.push_back({results[i], result_grads[i]});
    std::vector<ValueId> leaves, out(n.inputs.size());
    std::vector<size_t> at;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      // An operand used twice gets its whole gradient once.
      if (!wanted[i] || std::find(leaves.begin(), leaves.end(), n.inputs[i]) != leaves.end()) continue;
      leaves.push_back(n.inputs[i]);
      at.push_back(i);
    }
    std::vector<ValueId> grads = reverse(g_, seeds, leaves, {}, first);
    for (size_t k = 0; k < at.size(); ++k) out[at[k]] = grads[k];
    return out;
  }

  Graph& g_;
  std::span<const Seed> seeds_;
  std::vector<bool> depends_;
  std::vector<ValueId> grads_;
  std::vector<NodeId> nodes_;
};

}  // namespace

std::vector<ValueId> reverse(Graph& graph, std::span<const Seed> seeds, std::span<const ValueId> wrt,
                             std::span<const ValueId> stop, size_t first) {
  Sweep sweep(graph, seeds, wrt, stop, first);
  sweep.run();
  std::vector<ValueId> out;
  for (ValueId v : wrt) out.push_back(sweep.of(v));
  return out;
}

}  // namespace pelton::autodiff
