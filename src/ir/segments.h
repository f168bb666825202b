// SPDX-License-Identifier: Apache-2.0
// Segments of a `fused` node: what is done alike to many tensors of different shapes, as one node. The kinds
// are
//   "segments"      one pointwise program applied to each segment, whose tensors have one shape,
//   "segment_sums"  for each segment the sum of a pointwise program over all elements.
// The body holds the segments one after the other, node for node alike; the attribute `segments` counts them.
// An operand of one element may differ from segment to segment: that is where rates and decays are read.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace pelton::ir {

inline constexpr const char* kSegments = "segments";
inline constexpr const char* kSegmentSums = "segment_sums";

// A stretch of the nodes of a body that stands for itself.
struct Segment {
  std::vector<NodeId> nodes;      // constants included
  std::vector<ValueId> operands;  // inputs of the body, in the order in which the nodes first read them
  std::vector<ValueId> results;   // outputs of the body, in their order
  Shape shape;                    // of its tensors; of rank 0 where all are single elements
  // What all segments of a node have in common: ops, types, constants, and which operands are single
  // elements. Empty: the nodes are of another form.
  std::string program;
  bool is_full(const Type& t) const { return !shape.empty() && t.shape == shape; }
};

// The nodes [first, first + count) of the body as a segment of a node of this kind.
Segment segment_at(const Graph& body, size_t first, size_t count, std::string_view kind);
// All segments of the node; empty if it is of another kind or they are not alike.
std::vector<Segment> segments_of(const Node& node);

}  // namespace pelton::ir
