// SPDX-License-Identifier: Apache-2.0
// The raw form of an inference request: the body is the tensor of the model's one input and nothing else.
#pragma once

#include "serve/core/memory_gate.h"
#include "serve/core/model_config.h"
#include "serve/core/request.h"

namespace pelton::serve {

// Name, type and shape come from the configuration: one row where the model batches, an open dimension by the
// size of the body; of a BYTES input the body is the one element. bad_format if the model has several inputs,
// bad_shape if no shape fits. Tensors that do not lie in the body itself count in `gate`.
void read_raw_request(Request& request, const Blob& body, const ModelConfig& config, MemoryGate& gate);

}  // namespace pelton::serve
