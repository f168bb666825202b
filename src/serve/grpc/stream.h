// SPDX-License-Identifier: Apache-2.0
// One ModelStreamInfer call: requests run as they come, at most kWindow at a time; responses leave in the
// order of their requests.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>

#include "serve/core/access.h"
#include "serve/core/core.h"

namespace pelton::serve {

using StreamReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
// Owns itself until the call is done. A client that reads nothing of much for `stall_timeout` is cut off.
StreamReactor* make_stream_reactor(Core& core, grpc::CallbackServerContext* context,
                                   const HeaderPattern& forward, std::chrono::milliseconds stall_timeout);
StreamReactor* make_failed_stream(const grpc::Status& status);

}  // namespace pelton::serve
