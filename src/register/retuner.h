// SPDX-License-Identifier: Apache-2.0
// What times plans of other machines here (runtime/retuner.h), with the machine's own cache of timings.
#pragma once

#include "runtime/retuner.h"

namespace pelton {

const runtime::Retuner& retuner();  // outlives every plan

}  // namespace pelton
