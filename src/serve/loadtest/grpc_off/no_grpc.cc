// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "serve/loadtest/client.h"

namespace pelton::serve {

std::unique_ptr<LoadClient> make_grpc_client(const Endpoint&, double) {
  fail(ErrorCode::unsupported_op, "this build has no gRPC", "", "use the server's HTTP port");
}

}  // namespace pelton::serve
