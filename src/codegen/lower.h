// SPDX-License-Identifier: Apache-2.0
// From a fused group to a kernel. Takes pointwise ops, casts, broadcasts, movement (reshape, transpose,
// slice, reverse, concat, constant pad, tile, iota, fill) and reductions over one set of axes; composites are
// decomposed first.
#pragma once

#include <optional>

#include "codegen/kernel.h"
#include "ir/graph.h"

namespace pelton::codegen {

struct LowerOptions {
  // f16 and bf16 intermediates round after each op, as if every op ran alone. Otherwise they stay f32 and
  // only casts and results round.
  bool strict = false;
};

struct Lowered {
  std::optional<Kernel> kernel;
  std::string reason;  // why not, if there is no kernel
};

// `body`: the group as a closed graph. Without reductions the kernel is one grid loop over the elements; with
// them a grid loop over rows, reductions inside it, and a lanes loop for results of full size.
Lowered lower(const ir::Graph& body, std::string name, const LowerOptions& options = {});

}  // namespace pelton::codegen
