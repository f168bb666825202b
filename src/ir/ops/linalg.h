// SPDX-License-Identifier: Apache-2.0
// Small dense linear algebra: det.
#pragma once

#include "ir/ops/families.h"

namespace pelton::ir {

void add_linalg(OpRows& rows);

}  // namespace pelton::ir
