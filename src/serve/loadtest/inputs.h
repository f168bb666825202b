// SPDX-License-Identifier: Apache-2.0
// What the load generator sends: files, zeros or pseudo-random values in the shapes of the model's inputs.
#pragma once

#include <vector>

#include "serve/loadtest/client.h"

namespace pelton::serve {

// usage errors name the input that a flag does not fit.
std::vector<TensorValue> make_load_inputs(const LoadOptions& options, const TargetModel& model);

}  // namespace pelton::serve
