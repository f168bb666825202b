// SPDX-License-Identifier: Apache-2.0
// The bytes of inference answers. Large tensors are lent to the library, not copied: their memory stays until
// the last byte has left, and so does the room that the answer takes in the memory gate.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <vector>

#include "serve/core/memory_gate.h"
#include "serve/core/request.h"

namespace pelton::serve {

// A ModelInferResponse. `outputs` are those of the request; they say which outputs went to shared memory.
// busy error if the gate has no room, limit error above the 2 GiB of a message.
grpc::ByteBuffer infer_answer(Response&& response, const std::vector<RequestedOutput>& outputs,
                              MemoryGate& gate);
// The same inside a ModelStreamInferResponse.
grpc::ByteBuffer stream_answer(Response&& response, const std::vector<RequestedOutput>& outputs,
                               MemoryGate& gate);
// A ModelStreamInferResponse that says what went wrong with request `id`.
grpc::ByteBuffer stream_error(const std::string& id, const std::string& message);

}  // namespace pelton::serve
