// SPDX-License-Identifier: Apache-2.0
// Between the gRPC messages and the server's own requests and responses.
#pragma once

#include <grpcpp/support/status.h>

#include "grpc_service.pb.h"
#include "serve/core/request.h"

namespace pelton::serve {

// Takes the tensor data out of `message` without a copy. bad_format, bad_type or bad_shape say what is wrong.
void read_infer_message(inference::ModelInferRequest& message, Request& request);
void write_infer_message(const Response& response, inference::ModelInferResponse& message);
grpc::Status grpc_status(const Error& error);

}  // namespace pelton::serve
