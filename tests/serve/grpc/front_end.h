// SPDX-License-Identifier: Apache-2.0
// The gRPC front end of a test's server, on a port of its own.
#pragma once

#include "serve/core/fixture.h"
#include "serve/grpc/server.h"

namespace pelton::serve::test {

inline std::unique_ptr<GrpcServer> grpc_front_end(
    TestServer& s, std::chrono::milliseconds stall_timeout = GrpcOptions().stall_timeout) {
  GrpcOptions o;
  o.port = 0;
  o.stall_timeout = stall_timeout;
  return make_grpc_server(*s.core, o);
}

}  // namespace pelton::serve::test
