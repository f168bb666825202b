// SPDX-License-Identifier: Apache-2.0
#include "runtime/batch_slices.h"

#include <algorithm>

#include "ir/op.h"

namespace pelton::runtime {

using namespace ir;

namespace {

// Operands and results of a node beyond this leave the second-level cache and press on the third, which cores
// share.
constexpr int64_t kCacheBytes = int64_t{4} << 20;
// A slice is as many items as keep its largest node below this.
constexpr int64_t kSliceBytes = int64_t{2} << 20;
// Two items where this holds both: each of two threads then works on an item of its own and finds what it
// wrote in its own cache. Threads that share items fetch half of every operand from the other core, which
// costs half as much time again where the cores have no cache in common (a virtual machine's may be moved
// apart at any time).
constexpr int64_t kPairBytes = int64_t{16} << 20;
// What a node costs more for each slice beyond the first, in bytes of memory traffic: a few microseconds.
constexpr int64_t kCallBytes = 32 << 10;

enum class Part : uint8_t { whole, items, neither };  // without the batch, items along axis 0, otherwise

Part part_of(const Type& type, const std::string& batch) {
  if (!type.is_tensor()) return type.kind == TypeKind::token ? Part::whole : Part::neither;
  if (!type.ranked || is_sub_byte(type.dtype)) return Part::neither;
  std::set<std::string> others;
  for (size_t d = 1; d < type.shape.size(); ++d) type.shape[d].collect_symbols(others);
  if (others.count(batch)) return Part::neither;
  if (type.shape.empty()) return Part::whole;
  if (type.shape[0].as_symbol() == batch) return Part::items;
  std::set<std::string> lead;
  type.shape[0].collect_symbols(lead);
  return lead.count(batch) ? Part::neither : Part::whole;
}

// An operand without items may only be spread over all of them.
bool spreads(const Type& type, int64_t rank) {
  return type.rank() < rank || (type.rank() == rank && type.shape[0] == Dim(1));
}

bool rule_of(const Graph& g, const Node& n, const std::string& batch) {
  const Type& y = g.type(n.outputs[0]);
  auto part = [&](size_t i) {
    return i < n.inputs.size() && n.inputs[i] ? part_of(g.type(n.inputs[i]), batch) : Part::whole;
  };
  const bool first_only = [&] {
    for (size_t i = 1; i < n.inputs.size(); ++i)
      if (part(i) != Part::whole) return false;
    return part(0) == Part::items;
  }();
  if (n.op->batching == "any" || n.is("reshape") || n.is("concat") || n.is("matmul")) {
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (!n.inputs[i]) continue;
      const Type& x = g.type(n.inputs[i]);
      if (n.is("matmul") && i > 1 && part(i) == Part::whole) continue;  // zero points
      if (part(i) == Part::items ? x.rank() != y.rank() && !n.is("reshape") : !spreads(x, y.rank()))
        return false;
    }
    if (n.is("concat")) return n.get_int("axis") != 0;
    if (n.is("matmul")) return y.rank() > 2 || (y.rank() == 2 && first_only && !n.get_bool("transpose_a"));
    return true;
  }
  if (!first_only) return false;
  if (n.op->batching == "merge_batch") return n.outputs.size() == 1;  // a second result counts across items
  // Axis 0 is still there, so it was not reduced.
  if (n.op->name.starts_with("reduce_")) return true;
  if (n.is("transpose")) return n.get_ints("perm")[0] == 0;
  if (n.is("slice")) {
    const Ints& axes = n.get_ints("axes");
    return std::find(axes.begin(), axes.end(), 0) == axes.end();
  }
  if (n.is("pad")) return n.get_dims("low")[0] == Dim(0) && n.get_dims("high")[0] == Dim(0);
  if (n.is("resample")) return n.inputs.size() == 1;
  return n.is("batch_norm");
}

struct Weighed {
  int64_t items = 0;   // bytes of operands and results with items, of the whole batch
  int64_t shared = 0;  // of operands that every slice reads
};

Weighed weigh(const Graph& g, NodeId id, const std::string& batch, const SymbolValues& sizes) {
  Weighed w;
  auto add = [&](ValueId v) {
    if (!v || !g.type(v).is_tensor()) return;
    const Type& t = g.type(v);
    (part_of(t, batch) == Part::items ? w.items : w.shared) += physical_bytes(t, eval(t.shape, sizes));
  };
  for (ValueId v : g[id].inputs) add(v);
  for (ValueId v : g[id].outputs) add(v);
  return w;
}

}  // namespace

bool maps_batch(const Graph& g, NodeId id, const std::string& batch) {
  const Node& n = g[id];
  if (n.op->effects != Effects::pure || n.outputs.empty()) return false;
  for (ValueId v : n.inputs)
    if (v && part_of(g.type(v), batch) == Part::neither) return false;
  for (ValueId v : n.outputs)
    if (part_of(g.type(v), batch) != Part::items) return false;
  if (!n.is("fused")) return rule_of(g, n, batch);
  const Graph& body = n.get_graph("body");
  for (NodeId inner : body.order()) {
    if (body[inner].is("constant")) continue;
    const bool whole = std::all_of(body[inner].outputs.begin(), body[inner].outputs.end(),
                                   [&](ValueId v) { return part_of(body.type(v), batch) == Part::whole; });
    const bool reads_items =
        std::any_of(body[inner].inputs.begin(), body[inner].inputs.end(),
                    [&](ValueId v) { return v && part_of(body.type(v), batch) != Part::whole; });
    if (!(whole && !reads_items) && !maps_batch(body, inner, batch)) return false;
  }
  return true;
}

BatchSlices choose_slices(const Graph& g, uint32_t first, uint32_t last, const SymbolValues& sizes,
                          const std::vector<bool>& has_kernel, const std::vector<bool>& is_nothing) {
  BatchSlices best;
  int64_t best_gain = 0;
  std::set<std::string> batches;
  for (ValueId v : g.inputs)
    if (const Type& t = g.type(v); t.is_tensor() && !t.shape.empty())
      if (auto symbol = t.shape[0].as_symbol()) batches.insert(*symbol);
  for (const std::string& batch : batches) {
    auto size = sizes.find(batch);
    if (size == sizes.end() || size->second < 2) continue;
    const int64_t items = size->second;
    std::vector<Weighed> weights(last - first);
    int64_t largest = 0;
    for (uint32_t i = first; i < last; ++i)
      if (has_kernel[i] && maps_batch(g, g.order()[i], batch)) {
        Weighed& w = weights[i - first] = weigh(g, g.order()[i], batch, sizes);
        largest = std::max(largest, w.items);
      }
    if (largest <= kCacheBytes) continue;
    int64_t rows = std::clamp<int64_t>(kSliceBytes / std::max<int64_t>(1, largest / items), 1, items);
    if (rows == 1 && items % 2 == 0 && 2 * (largest / items) <= kPairBytes) rows = 2;
    while (items % rows != 0) --rows;
    const int64_t count = items / rows;
    if (count < 2) continue;
    // The stretch with the largest sum of gains.
    int64_t gain = 0;
    uint32_t start = first;
    for (uint32_t i = first; i < last; ++i) {
      if (is_nothing[i]) {
        // A view passes if its bytes keep their items; a constant is no one's business.
        const Node& n = g[g.order()[i]];
        if (n.is("constant") || maps_batch(g, g.order()[i], batch)) continue;
        const bool apart = std::all_of(n.outputs.begin(), n.outputs.end(),
                                       [&](ValueId v) { return part_of(g.type(v), batch) == Part::whole; });
        if (apart) continue;
      }
      const Weighed& w = weights[i - first];
      if (w.items == 0) {
        gain = 0;
        start = i + 1;
        continue;
      }
      gain += (w.items > kCacheBytes ? w.items : 0) - (count - 1) * (w.shared + kCallBytes);
      if (gain <= 0) {
        gain = 0;
        start = i + 1;
      } else if (gain > best_gain) {
        best_gain = gain;
        best = {start, i + 1, batch, rows, count};
      }
    }
  }
  return best;
}

}  // namespace pelton::runtime
