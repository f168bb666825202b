// SPDX-License-Identifier: Apache-2.0
// One ModelInfer call.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>

#include "serve/core/access.h"
#include "serve/core/core.h"

namespace pelton::serve {

// Owns itself until the call is done. `message`, which is emptied,
// and `answer` are the call's. A client that does not read a large
// answer is cut off after `stall_timeout`, and once more for each 8 MiB.
grpc::ServerUnaryReactor* make_infer_call(Core& core, grpc::CallbackServerContext* context,
                                          grpc::ByteBuffer& message, grpc::ByteBuffer& answer,
                                          const HeaderPattern& forward,
                                          std::chrono::milliseconds stall_timeout);

}  // namespace pelton::serve
