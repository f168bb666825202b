// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "serve/options.h"

namespace pelton::serve {

int run_server(const ServeOptions&, const BackendTable&, bool) {
  fail(ErrorCode::unsupported_op, "this build has no server", "",
       "install the headers of Boost and simdjson and configure again");
}

}  // namespace pelton::serve
