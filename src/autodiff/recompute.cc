// SPDX-License-Identifier: Apache-2.0
#include "autodiff/recompute.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/builder.h"
#include "ir/op.h"

namespace pelton::autodiff {

using namespace ir;

namespace {

class Chooser {
 public:
  Chooser(Graph& g, size_t first, size_t forward_nodes, const SymbolValues& sizes)
      : g_(g), sizes_(sizes), order_(g.order()), begin_(first) {
    forward_ = std::min(forward_nodes, order_.size());
    for (size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = i;
    for (size_t i = begin_; i < forward_; ++i)
      for (ValueId v : g_[order_[i]].outputs)
        if (!g_.constant(v) && !g_.is_output(v) && g_.type(v).is_tensor() &&
            first_backward_use(v) < order_.size())
          kept_[v] = bytes(v);
  }

  Recomputation run(int64_t budget) {
    Recomputation out;
    for (const auto& [v, size] : kept_) out.kept_bytes_before += size;
    out.kept_bytes = out.kept_bytes_before;
    while (out.kept_bytes > budget) {
      ValueId best;
      Closure best_closure;
      double best_value = 0;
      for (const auto& [v, size] : kept_) {
        Closure c;
        if (!close(v, v, c) || c.freed + size <= 0) continue;
        // Values that are no longer kept and read v run its part again, too.
        double times = 1;
        for (const auto& [other, closure] : dropped_) times += closure.reads.count(v);
        double value = static_cast<double>(c.freed + size) / (c.flops * times + 1);
        if (value <= best_value) continue;
        best = v;
        best_value = value;
        best_closure = c;
        best_closure.freed += size;
      }
      if (!best) break;
      kept_.erase(best);
      for (ValueId v : best_closure.more) kept_[v] = bytes(v);
      out.kept_bytes -= best_closure.freed;
      for (auto& [other, closure] : dropped_)
        if (closure.reads.erase(best))
          closure.reads.insert(best_closure.reads.begin(), best_closure.reads.end());
      dropped_[best] = best_closure;
      ++out.values;
    }
    rewrite();
    out.flops = flops_;
    return out;
  }

 private:
  int64_t bytes(ValueId v) const {
    const Type& t = g_.type(v);
    return physical_bytes(t, eval(t.shape, sizes_));
  }
  double cost(NodeId id) const {
    const Node& n = g_[id];
    std::vector<Dims> in, out;
    for (ValueId v : n.inputs)
      in.push_back(v && g_.type(v).is_tensor() ? eval(g_.type(v).shape, sizes_) : Dims());
    for (ValueId v : n.outputs) out.push_back(eval(g_.type(v).shape, sizes_));
    // Moving an element counts a quarter of an operation.
    return n.op->flops ? n.op->flops(g_, n, in, out) : 0.25 * static_cast<double>(element_count(out[0]));
  }
  size_t first_backward_use(ValueId v) const {
    size_t first = SIZE_MAX;
    for (Use u : g_[v].uses)
      if (size_t at = place_.at(u.user); at >= forward_) first = std::min(first, at);
    return first;
  }
  bool runs_again(const Node& n) const {
    return n.op->effects != Effects::ordered && n.op->family != Family::control &&
           n.op->family != Family::custom;
  }
  // What computes v from what is there in the backward pass.
  struct Closure {
    std::set<NodeId> nodes;
    std::set<ValueId> reads, more;  // kept values; those that would have to be kept for it
    double flops = 0;
    int64_t freed = 0;  // bytes, negative for `more`
  };
  // False: v cannot be computed again.
  bool close(ValueId v, ValueId target, Closure& c) const {
    if (is_there(v)) return true;
    if (v != target && kept_.count(v)) {
      c.reads.insert(v);
      return true;
    }
    NodeId producer = g_[v].producer;
    if (c.nodes.count(producer)) return true;
    constexpr size_t kMost = 64;
    const Node& n = g_[producer];
    if (!runs_again(n) || c.nodes.size() >= kMost) return false;
    c.nodes.insert(producer);
    c.flops += cost(producer);
    for (ValueId operand : n.inputs)
      if (operand && !close(operand, target, c) && c.more.insert(operand).second) c.freed -= bytes(operand);
    return true;
  }
  // Inputs, parameters, constants, results of the graph and backward values are there anyhow.
  bool is_there(ValueId v) const {
    NodeId producer = g_[v].producer;
    auto at = producer ? place_.find(producer) : place_.end();
    return at == place_.end() || at->second < begin_ || at->second >= forward_ || g_.constant(v) ||
           g_.is_output(v);
  }

  // A backward value that the node needs anyhow, by which its recomputed operands wait for their time; the
  // last one made; the last forward result where there is none.
  ValueId signal(NodeId user) const {
    ValueId found = g_[order_[forward_ - 1]].outputs[0];
    size_t last = 0;
    for (ValueId v : g_[user].inputs) {
      NodeId producer = v ? g_[v].producer : NodeId{};
      auto at = producer ? place_.find(producer) : place_.end();
      if (at == place_.end() || at->second < forward_ || g_.constant(v) || at->second < last) continue;
      found = v;
      last = at->second;
    }
    return found;
  }

  void rewrite() {
    std::vector<std::pair<size_t, ValueId>> sorted;  // in the order in which the backward pass wants them
    for (const auto& [v, closure] : dropped_)
      if (size_t first = first_backward_use(v); first < order_.size()) sorted.emplace_back(first, v);
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [first, v] : sorted) {
      Builder b(g_, order_[first]);
      ValueId fresh = again(b, v, first, signal(order_[first]));
      for (Use u : std::vector<Use>(g_[v].uses))
        if (auto at = place_.find(u.user); at != place_.end() && at->second >= forward_)
          g_.set_input(u.user, u.input, fresh);
    }
  }
  // v for the node at place `first`. Parts made for a node shortly before are shared; older ones would have
  // to be kept.
  ValueId again(Builder& b, ValueId v, size_t first, ValueId wait) {
    constexpr size_t kShortly = 16;
    if (auto it = copies_.find(v); it != copies_.end() && it->second.second + kShortly >= first)
      return it->second.first;
    if (is_there(v) || kept_.count(v)) {
      if (!g_[v].producer || g_.constant(v)) return v;
      ValueId late = b.op("after", {v, wait});
      copies_[v] = {late, first};
      return late;
    }
    NodeId producer = g_[v].producer;
    if (g_.op(producer).effects == Effects::random && g_[producer].get_int("stream") == 0)
      g_.edit(producer).attrs["stream"] = static_cast<int64_t>(g_[producer].stable_id);
    const Node n = g_[producer];
    flops_ += cost(producer);
    std::vector<ValueId> inputs;
    for (ValueId operand : n.inputs) inputs.push_back(operand ? again(b, operand, first, wait) : operand);
    // A node of parameters and inputs alone has no late operand; one of them waits.
    if (std::equal(inputs.begin(), inputs.end(), n.inputs.begin()))
      for (ValueId& operand : inputs)
        if (operand && !g_.constant(operand)) {
          operand = b.op("after", {operand, wait});
          break;
        }
    b.set_name(n.name.empty() ? "again" : cat(n.name, "/again"));
    std::vector<ValueId> results = b.ops(n.op->name, inputs, n.attrs, n.outputs.size());
    for (size_t i = 0; i < results.size(); ++i) copies_[n.outputs[i]] = {results[i], first};
    return copies_[v].first;
  }

  Graph& g_;
  const SymbolValues& sizes_;
  const std::vector<NodeId> order_;
  size_t begin_, forward_ = 0;
  std::map<NodeId, size_t> place_;
  std::map<ValueId, int64_t> kept_;  // forward results that the backward pass reads
  std::map<ValueId, Closure> dropped_;
  std::map<ValueId, std::pair<ValueId, size_t>> copies_;  // with the place that they were made for
  double flops_ = 0;
};

}  // namespace

Recomputation recompute(Graph& graph, size_t forward_nodes, int64_t budget_bytes, const SymbolValues& sizes,
                        size_t first) {
  return Chooser(graph, first, forward_nodes, sizes).run(budget_bytes);
}

}  // namespace pelton::autodiff
