// SPDX-License-Identifier: Apache-2.0
// Recognises composites in the primitive spellings that exporters write: activations (GELU, SiLU, hard-swish,
// ...), layer norm, RMS norm, softmax, attention.
#pragma once

#include "passes/pass.h"

namespace pelton::passes {

bool composites(ir::Graph& graph, const Context& context);

// Parts, each usable alone.
bool recognise_activations(ir::Graph& graph, const Context& context);
bool recognise_norms(ir::Graph& graph, const Context& context);
bool recognise_attention(ir::Graph& graph, const Context& context);

}  // namespace pelton::passes
