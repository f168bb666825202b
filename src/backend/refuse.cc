// SPDX-License-Identifier: Apache-2.0
#include "backend/refuse.h"

#include "base/cat.h"

namespace pelton::backend {
namespace {

std::string refuse_type(const ir::Type& t) {
  if (!t.is_tensor() || !t.ranked) return cat("needs tensors of known rank, got ", t.str());
  if (!t.layout.is_plain()) return cat("needs the plain layout, got ", t.layout.str());
  if (t.dtype == DType::string || is_sub_byte(t.dtype)) return cat("does not take ", name(t.dtype));
  return {};
}

}  // namespace

std::string refuse_layouts(const ir::Graph& graph, ir::NodeId node) {
  for (ir::ValueId v : graph[node].inputs)
    if (v)
      if (std::string why = refuse_type(graph.type(v)); !why.empty()) return why;
  for (ir::ValueId v : graph[node].outputs)
    if (std::string why = refuse_type(graph.type(v)); !why.empty()) return why;
  return {};
}

}  // namespace pelton::backend
