// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "serve/grpc/server.h"

namespace pelton::serve {

bool grpc_available() {
  return false;
}

std::unique_ptr<GrpcServer> make_grpc_server(Core&, const GrpcOptions&) {
  fail(ErrorCode::unsupported_op, "this build has no gRPC", "",
       "install gRPC and protobuf with their headers and configure again");
}

}  // namespace pelton::serve
