// SPDX-License-Identifier: Apache-2.0
// Requests and responses in the messages of a Python model's process.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "serve/core/engine.h"
#include "serve/engine/worker_process.h"

namespace pelton::serve {

// Tensor data is added to `blobs`.
nlohmann::json response_json(const Response& response, std::vector<Blob>& blobs, size_t& offset);
nlohmann::json parameters_json(const Parameters& parameters);
// Tensors of a frame. bad_format, bad_type or bad_shape if they do not add up.
std::vector<TensorValue> read_tensors(const nlohmann::json& list, const Frame& frame);
Response read_response(const nlohmann::json& response, const Frame& frame, const ModelConfig& config);
Parameters read_parameters(const nlohmann::json& object);
Error read_error(const nlohmann::json& object);
// An inference that a model asks for.
RequestPtr read_model_request(const nlohmann::json& message, const Frame& frame);

// bad_shape if the data is not as large as the shape says.
void check_size(const TensorValue& tensor);
// An error in place of outputs whose types are not those of the configuration.
void check_types(Response& response, const ModelConfig& config);
// The same bytes, in memory that nobody can shorten: that would end a message in its middle.
Blob stable(const Blob& blob);

}  // namespace pelton::serve
