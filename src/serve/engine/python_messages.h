// SPDX-License-Identifier: Apache-2.0
// Requests and responses in the messages of a Python model's process.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "serve/core/engine.h"
#include "serve/engine/worker_process.h"

namespace pelton::serve {

// `key` names the request in later messages. Tensor data is added to `blobs`.
nlohmann::json request_json(const Request& request, const ModelConfig& config, uint64_t key,
                            std::vector<Blob>& blobs, size_t& offset);
nlohmann::json response_json(const Response& response, std::vector<Blob>& blobs, size_t& offset);
// Tensors of a frame. bad_format or bad_type if they do not add up.
std::vector<TensorValue> read_tensors(const nlohmann::json& list, const Frame& frame);
Response read_response(const nlohmann::json& response, const Frame& frame, const ModelConfig& config);
Parameters read_parameters(const nlohmann::json& object);
// An inference that a model asks for.
RequestPtr read_model_request(const Frame& frame);

}  // namespace pelton::serve
