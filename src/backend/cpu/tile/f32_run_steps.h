// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cpu/tile/step.h"

namespace pelton::backend::cpu {

// As f32_step (step.h), of the codes that work on a whole run at once.
StepFunction f32_run_step(Code code, device::CpuIsa isa);

}  // namespace pelton::backend::cpu
