// SPDX-License-Identifier: Apache-2.0
#include "passes/composites.h"

namespace pelton::passes {

bool composites(ir::Graph& graph, const Context& context) {
  // Norms first: their parts must not be taken for activations. Attention last: it builds on softmax.
  bool changed = recognise_norms(graph, context);
  changed |= recognise_activations(graph, context);
  changed |= recognise_attention(graph, context);
  return changed;
}

}  // namespace pelton::passes
