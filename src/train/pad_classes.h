// SPDX-License-Identifier: Apache-2.0
// Classes beside the model's own that no sample has, so that the products of a large head have sizes that
// tensor cores take: GPT-2's 50257 is odd.
#pragma once

#include "ir/builder.h"

namespace pelton::train {

// Logits with the last axis grown to a multiple of `multiple`; the new ones are so low that softmax gives
// them 0 and no gradient. y itself if it is no plain product with a table [classes, width], or has few
// classes.
ir::ValueId pad_classes(ir::Builder& b, ir::ValueId y, int64_t multiple);

}  // namespace pelton::train
