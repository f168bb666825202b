// SPDX-License-Identifier: Apache-2.0
// Where a random node draws its numbers, the same for every back end.
#pragma once

#include "base/philox.h"
#include "ir/eval.h"

namespace pelton::ir {

// The node's attribute `seed` is mixed into the seed of the run (0 leaves it); its attribute `stream` other
// than 0 stands for its stable id.
RandomStream random_stream(const Node& node, const RandomKey& key);

}  // namespace pelton::ir
