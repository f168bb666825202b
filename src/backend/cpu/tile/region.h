// SPDX-License-Identifier: Apache-2.0
// A group of pointwise, cast, broadcast and reduction nodes seen as one loop nest: what it consists of, and
// whether a tile program can run it.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace pelton::backend::cpu {

// A single node, or the body of a `fused` node.
struct Region {
  const ir::Graph& graph;  // that holds the nodes
  std::vector<ir::NodeId> nodes;
  std::vector<ir::ValueId> inputs, outputs;  // one for each of the outer node's
};
Region region_of(const ir::Graph& graph, ir::NodeId node);

// The part of an op that the region analysis asks about.
enum class Role : uint8_t {
  none,  // not for tile programs
  constant,
  pointwise,  // element by element, broadcasting
  cast,
  broadcast,    // broadcast_to
  channelwise,  // batch_norm, quantize, dequantize, requantize: parameters lie along one axis
  reshape,      // only adds or drops dims of size 1, or re-shapes an input
  reduce,       // reduce_*: drops or keeps the axes
  row_norm,     // softmax, norms: keeps the shape, works along its axes
};
Role role(const ir::Node& node);
// Reduced axes of a reduce or row_norm node whose operand has this rank, ascending.
ir::Ints reduced_axes(const ir::Node& node, int64_t rank);
// Axis of the parameters of a channelwise node on a tensor of this rank.
int64_t parameter_axis(const ir::Node& node, int64_t rank);

// How a value lies in the iteration space of the region.
struct Place {
  enum Kind : uint8_t {
    source,    // bytes of an input or constant, seen through `shape`
    full,      // computed at every point
    row,       // computed once a row, reduced axes kept as size 1
    squeezed,  // computed once a row, reduced axes dropped
  } kind = source;
  Shape shape;  // symbolic
};

struct Analysis {
  std::string reason;         // empty: can run
  Shape space;                // symbolic shape of the iteration space
  ir::Ints axes;              // reduced axes of the space; empty: none
  std::vector<Place> places;  // by value index
};
Analysis analyse(const Region& region);

}  // namespace pelton::backend::cpu
