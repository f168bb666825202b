// SPDX-License-Identifier: Apache-2.0
#include "autodiff/path.h"

#include <map>
#include <set>

namespace pelton::autodiff {

using namespace ir;

std::string path_from_loss(const Graph& graph, NodeId node, std::span<const Seed> seeds,
                           std::span<const NodeId> nodes) {
  std::set<NodeId> on_the_way(nodes.begin(), nodes.end());
  std::map<NodeId, NodeId> towards_loss;
  std::vector<NodeId> queue;
  auto visit = [&](ValueId v, NodeId from) {
    NodeId producer = v ? graph[v].producer : NodeId{};
    if (!producer || !on_the_way.count(producer) || !towards_loss.emplace(producer, from).second) return;
    queue.push_back(producer);
  };
  for (const Seed& s : seeds) visit(s.value, {});
  for (size_t i = 0; i < queue.size() && !towards_loss.count(node); ++i)
    for (ValueId v : graph[queue[i]].inputs) visit(v, queue[i]);

  std::vector<std::string> steps;
  for (NodeId at = node; at; at = towards_loss.count(at) ? towards_loss[at] : NodeId{})
    steps.insert(steps.begin(), graph.describe(at));
  constexpr size_t kEnds = 4;
  if (steps.size() > 2 * kEnds + 1) {
    size_t left_out = steps.size() - 2 * kEnds;
    steps.erase(steps.begin() + kEnds, steps.end() - kEnds);
    steps.insert(steps.begin() + kEnds, cat("(", left_out, " more)"));
  }
  std::string text = "path from the loss: ";
  for (size_t i = 0; i < steps.size(); ++i) append(text, cat(i ? " <- " : "", steps[i]));
  return text;
}

}  // namespace pelton::autodiff
