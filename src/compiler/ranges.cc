// SPDX-License-Identifier: Apache-2.0
#include "compiler/ranges.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "compiler/int8.h"
#include "ir/op.h"

namespace pelton::compiler {

using namespace ir;

namespace {

// Half of the largest number: other inputs may reach further than the samples.
constexpr double kMost = 65504.0 / 2;

double largest_finite(const Tensor& t) {
  double most = 0;
  for (int64_t i = 0; i < t.count(); ++i)
    if (const double v = std::abs(t.get_double(i)); std::isfinite(v)) most = std::max(most, v);
  return most;
}

}  // namespace

std::vector<NodeId> named_contractions(Graph& graph) {
  std::vector<NodeId> out;
  for (NodeId id : graph.order()) {
    const Family family = graph[id].op->family;
    if (family != Family::contraction && family != Family::convolution && !graph[id].is("attention"))
      continue;
    if (graph[id].name.empty()) graph.edit(id).name = cat(graph[id].op->name, "_", graph[id].stable_id);
    out.push_back(id);
  }
  return out;
}

std::set<std::string> out_of_f16(Graph& graph, const std::vector<std::vector<Tensor>>& samples,
                                 const backend::Registry& registry,
                                 const std::function<runtime::Plan(Graph)>& compile,
                                 std::vector<std::string>& notes) {
  const std::vector<NodeId> nodes = named_contractions(graph);
  Graph seen = graph;
  std::map<uint32_t, size_t> output_of;  // by value: which of the further results it is
  const size_t first = seen.outputs.size();
  auto show = [&](ValueId v) {
    if (!v || graph.constant(v) || graph.type(v).dtype != DType::f32 || output_of.count(v.index)) return;
    output_of[v.index] = seen.outputs.size() - first;
    seen.add_output(v);
  };
  for (NodeId id : nodes) {
    for (ValueId v : graph[id].inputs) show(v);
    for (ValueId v : graph[id].outputs) show(v);
  }
  std::vector<double> most(seen.outputs.size() - first, 0);
  run_samples(compile(std::move(seen)), samples, registry, "looking for large values",
              [&](const std::vector<Tensor>& results) {
                for (size_t i = 0; i < most.size(); ++i)
                  most[i] = std::max(most[i], largest_finite(results[first + i]));
              });
  std::set<std::string> names;
  for (NodeId id : nodes) {
    double reach = 0;
    for (const auto* values : {&graph[id].inputs, &graph[id].outputs})
      for (ValueId v : *values) {
        const auto at = v ? output_of.find(v.index) : output_of.end();
        if (at != output_of.end()) reach = std::max(reach, most[at->second]);
      }
    if (reach <= kMost || !names.insert(graph[id].name).second) continue;
    notes.push_back(cat("'", graph[id].name, "' stays in f32: its values reach ", reach));
  }
  return names;
}

}  // namespace pelton::compiler
