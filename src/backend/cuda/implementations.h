// SPDX-License-Identifier: Apache-2.0
// The families of CUDA implementations, each added by one call; register.cc fixes their order.
#pragma once

#include "backend/kernel.h"

namespace pelton::backend::cuda {}  // namespace pelton::backend::cuda
