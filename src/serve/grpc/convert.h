// SPDX-License-Identifier: Apache-2.0
// Between the gRPC messages and the server's own requests and responses.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include "grpc_service.pb.h"
#include "serve/core/access.h"
#include "serve/core/request.h"
#include "serve/core/shared_memory.h"

namespace pelton::serve {

// Empties `bytes`. bad_format if they are none.
inference::ModelInferRequest parse_infer_message(grpc::ByteBuffer& bytes);
// Takes the tensor data out of `message` without a copy. bad_format, bad_type or bad_shape say what is wrong.
void read_infer_message(inference::ModelInferRequest& message, Request& request, const SharedMemory& memory);
// All but the outputs' data. `outputs` are those of the request; they say which outputs went to shared
// memory.
void write_infer_head(const Response& response, const std::vector<RequestedOutput>& outputs,
                      inference::ModelInferResponse& message);
grpc::Status grpc_status(const Error& error);
// Metadata of the call whose names match becomes parameters of the request; with `tracing` its trace context
// is kept.
void forward_metadata(const grpc::CallbackServerContext& context, const HeaderPattern& pattern, bool tracing,
                      Request& request);

}  // namespace pelton::serve
