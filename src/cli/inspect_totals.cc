// SPDX-License-Identifier: Apache-2.0
#include "cli/inspect_totals.h"

#include <set>

#include "ir/op.h"

namespace pelton::cli {
namespace {

// What a node computes and writes.
void add_work(const ir::Graph& g, const ir::Node& n, const SymbolValues& sizes, Totals& t) {
  std::vector<Dims> in, out;
  try {
    for (ir::ValueId v : n.inputs) in.push_back(v ? eval(g.type(v).shape, sizes) : Dims{});
    for (ir::ValueId v : n.outputs) {
      out.push_back(eval(g.type(v).shape, sizes));
      if (g.type(v).is_tensor() && g.type(v).dtype != DType::string)
        t.bytes += static_cast<double>(ir::physical_bytes(g.type(v), out.back()));
    }
    if (n.op->flops) t.flops += n.op->flops(g, n, in, out);
  } catch (const Error& e) {
    t.unsized = e.message();
  }
}

// Nodes within a fused one (`fused`) are counted as ops only: its own row has their arithmetic, and what they
// hand to each other is not written.
void count(const ir::Graph& g, const SymbolValues& sizes, bool fused, Totals& t) {
  for (ir::NodeId id : g.order()) {
    const ir::Node& n = g[id];
    if (n.is("constant")) {
      const Tensor& value = n.get_tensor("value");
      t.parameters += value.count();
      if (value.dtype() != DType::string) t.parameter_bytes += value.bytes();
      continue;
    }
    ++t.nodes;
    ++t.ops[std::string(n.op->name)];
    if (!fused) add_work(g, n, sizes, t);
    for (const auto& [key, value] : n.attrs)
      if (auto body = std::get_if<ir::GraphPtr>(&value)) count(**body, sizes, fused || n.is("fused"), t);
  }
}

}  // namespace

Totals totals(const ir::Graph& g, const SymbolValues& sizes) {
  Totals t;
  count(g, sizes, false, t);
  return t;
}

std::string counted_at(const ir::Graph& g, const SymbolValues& sizes) {
  std::set<std::string> open;
  for (ir::ValueId v : g.inputs)
    for (const Dim& d : g.type(v).shape) d.collect_symbols(open);
  std::string text;
  for (const std::string& symbol : open)
    append(text, cat(text.empty() ? " at " : ", ", symbol, "=", sizes.at(symbol)));
  return text;
}

}  // namespace pelton::cli
