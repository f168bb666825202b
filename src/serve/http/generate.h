// SPDX-License-Identifier: Apache-2.0
// The generate extension: plain JSON objects whose keys are the model's inputs and outputs.
#pragma once

#include <string>

#include "serve/core/memory_gate.h"
#include "serve/core/model_config.h"
#include "serve/core/request.h"

namespace pelton::serve {

// Keys that name an input of the model become tensors: a value is one element, a (nested) list its shape;
// models that batch get a row of 1. "id" and "parameters" are those of the request; every other scalar is a
// parameter. bad_format, bad_type or bad_shape say what is wrong.
// Tensors of any size count in `gate`.
void read_generate_request(Request& request, const Blob& body, const ModelConfig& config, MemoryGate& gate);
// {"model_name": ..., "model_version": ..., OUTPUT: value or flat list, ...}
std::string write_generate_response(const Response& response);

}  // namespace pelton::serve
