// SPDX-License-Identifier: Apache-2.0
// The engine that returns its inputs: outputs take the data of the inputs in their order, without a copy. The
// parameter execute_delay_ms makes it slow, for tests of queues and deadlines.
#pragma once

#include "serve/core/engine.h"

namespace pelton::serve {

std::shared_ptr<const Backend> make_identity_backend();

}  // namespace pelton::serve
