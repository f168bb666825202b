// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/reductions.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/builder.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

using namespace ir;
using codegen::Statement;

bool is_reduction(const Node& n) {
  return n.op->family == Family::reduction && n.op->name.starts_with("reduce_");
}

// Votes of the loads inside reductions: along rows, and along a row.
struct Votes {
  int columns = 0, lanes = 0;
};
void vote(const codegen::Kernel& k, const codegen::Block& block, const std::string& row,
          const std::string& lane, const SymbolValues& sizes, Votes& votes) {
  for (const Statement& s : block) {
    if (s.kind == Statement::Kind::reduce) vote(k, s.body, row, s.variable, sizes, votes);
    if (s.kind == Statement::Kind::loop)
      vote(k, s.body, s.loop == codegen::LoopKind::grid ? s.variable : row, lane, sizes, votes);
    if (s.kind != Statement::Kind::load || lane.empty()) continue;
    Dim at = 0;
    const codegen::Buffer& b = k.buffers[s.buffer];
    for (size_t d = 0; d < s.index.size(); ++d) at = at * b.dims[d] + s.index[d];
    auto place = [&](int64_t r, int64_t l) {
      SymbolValues values = sizes;
      values[row] = r;
      values[lane] = l;
      return at.eval(values);
    };
    const int64_t here = place(0, 0), next_row = place(1, 0) - here, next_lane = place(0, 1) - here;
    votes.columns += next_row == 1 && next_lane != 1;
    votes.lanes += next_lane == 1 && next_row != 1;
  }
}

// Copies nodes from one graph to another as they are needed.
class Copier {
 public:
  Copier(const Graph& from, Graph& to, std::vector<size_t>& inputs)
      : from_(from), to_(to), b_(to), inputs_(inputs) {}
  Builder& builder() { return b_; }
  void stands_for(ValueId v, ValueId copy) { known_[v] = copy; }
  ValueId copy(ValueId v) {
    if (!v) return v;
    if (auto it = known_.find(v); it != known_.end()) return it->second;
    const NodeId id = from_[v].producer;
    if (!id) {
      const auto at = std::find(from_.inputs.begin(), from_.inputs.end(), v);
      inputs_.push_back(static_cast<size_t>(at - from_.inputs.begin()));
      return known_[v] = to_.add_input(from_.type(v));
    }
    const Node& n = from_[id];
    std::vector<ValueId> operands;
    for (ValueId in : n.inputs) operands.push_back(copy(in));
    const std::vector<ValueId> results = b_.ops(n.op->name, operands, n.attrs, n.outputs.size());
    for (size_t i = 0; i < results.size(); ++i) known_[n.outputs[i]] = results[i];
    return known_[v];
  }

 private:
  const Graph& from_;
  Graph& to_;
  Builder b_;
  std::vector<size_t>& inputs_;
  std::map<ValueId, ValueId> known_;
};

// The reductions of a graph of primitives over one space of known sizes.
struct Reductions {
  std::vector<NodeId> nodes;
  Dims dims;
  Ints reduced, kept;
  int64_t rows = 1, length = 1;
};
std::optional<Reductions> reductions_of(const Graph& g) {
  Reductions r;
  for (NodeId id : g.order()) {
    const Node& n = g[id];
    if (!is_reduction(n)) continue;
    const std::optional<Dims> dims = as_dims(g.type(n.inputs[0]).shape);
    if (!dims) return {};
    Ints axes = n.get_ints("axes");
    for (int64_t& a : axes) a = a < 0 ? a + static_cast<int64_t>(dims->size()) : a;
    std::sort(axes.begin(), axes.end());
    if (!r.nodes.empty() && (r.dims != *dims || r.reduced != axes)) return {};
    r.dims = *dims;
    r.reduced = axes;
    r.nodes.push_back(id);
  }
  if (r.nodes.empty()) return {};
  for (int64_t d = 0; d < static_cast<int64_t>(r.dims.size()); ++d) {
    const bool gone = std::find(r.reduced.begin(), r.reduced.end(), d) != r.reduced.end();
    (gone ? r.length : r.rows) *= r.dims[static_cast<size_t>(d)];
    if (!gone) r.kept.push_back(d);
  }
  return r;
}
Graph primitives_of(const Graph& graph) {
  Graph g = graph;
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId id : std::vector<NodeId>(g.order())) changed |= expand(g, id);
  }
  return g;
}
// Values that a reduction stands in front of.
std::set<ValueId> behind(const Graph& g) {
  std::set<ValueId> out;
  for (NodeId id : g.order()) {
    bool after = is_reduction(g[id]);
    for (ValueId v : g[id].inputs) after |= v && out.count(v);
    if (after) out.insert(g[id].outputs.begin(), g[id].outputs.end());
  }
  return out;
}

}  // namespace

bool reads_columns(const codegen::Kernel& kernel, const SymbolValues& sizes) {
  Votes votes;
  vote(kernel, kernel.body, "", "", sizes, votes);
  return votes.columns > votes.lanes;
}

std::optional<RowSizes> row_sizes(const Graph& graph) {
  const std::optional<Reductions> r = reductions_of(primitives_of(graph));
  if (!r) return {};
  return RowSizes{r->rows, r->length};
}

int64_t even_parts(int64_t length, int64_t most) {
  for (int64_t parts = std::min(length, most); parts > 1; --parts)
    if (length % parts == 0) return parts;
  return 1;
}

std::optional<SplitReduction> split_reduction(const Graph& graph, int64_t parts) {
  const Graph g = primitives_of(graph);
  const std::optional<Reductions> r = reductions_of(g);
  if (!r || parts < 2 || r->length % parts != 0) return {};
  const std::set<ValueId> late = behind(g);
  for (NodeId id : r->nodes) {
    if (late.count(g[id].inputs[0])) return {};
    if (!is_float(g.type(g[id].outputs[0]).dtype)) return {};
  }
  for (ValueId v : g.outputs) {
    const std::optional<Dims> dims = as_dims(g.type(v).shape);
    if (!late.count(v) || !dims || element_count(*dims) != r->rows) return {};
  }
  SplitReduction out;
  out.first.symbols = out.second.symbols = graph.symbols;
  Copier first(g, out.first, out.first_inputs), second(g, out.second, out.second_inputs);
  Builder &a = first.builder(), &b = second.builder();
  Ints perm = r->reduced;
  perm.insert(perm.end(), r->kept.begin(), r->kept.end());
  for (NodeId id : r->nodes) {
    const Node& n = g[id];
    const bool mean = n.is("reduce_mean");
    const std::string op(mean ? std::string_view("reduce_sum") : n.op->name);
    const Type& type = g.type(n.outputs[0]);
    ValueId x = first.copy(n.inputs[0]);
    if (bits(type.dtype) < 32) x = a.cast(x, DType::f32);
    x = a.reshape(a.transpose(x, perm), {parts, r->length / parts, r->rows});
    const ValueId part = a.reduce(op, x, {1}, false);
    out.first.add_output(part);
    ValueId y = b.reduce(op, out.second.add_input(out.first.type(part)), {0}, false);
    if (mean) y = b.div(y, b.like(y, static_cast<double>(r->length)));
    second.stands_for(n.outputs[0], b.reshape(b.cast(y, type.dtype), type.shape));
  }
  for (ValueId v : g.outputs) out.second.add_output(second.copy(v));
  return out;
}

}  // namespace pelton::backend::cuda
