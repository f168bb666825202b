// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/eval.h"

namespace pelton::ir {

void eval_constant(EvalContext& c);
void eval_reshape(EvalContext& c);
void eval_transpose(EvalContext& c);
void eval_broadcast_to(EvalContext& c);
void eval_slice(EvalContext& c);
void eval_concat(EvalContext& c);
void eval_pad(EvalContext& c);
void eval_tile(EvalContext& c);
void eval_reverse(EvalContext& c);
void eval_iota(EvalContext& c);
void eval_fill(EvalContext& c);
void eval_shape_of(EvalContext& c);
void eval_contents(EvalContext& c);
void eval_trilu(EvalContext& c);

// bad_shape where such a slice reads outside of a tensor of these dims.
void require_slice(const Dims& dims, const Ints& axes, const Dims& starts, const Dims& sizes,
                   const Ints& steps);
// The same on plain values, for the data-dependent forms.
Tensor slice_tensor(const Tensor& x, const Ints& axes, const Dims& starts, const Dims& sizes,
                    const Ints& steps);
// `value` undefined: zero (or the empty string). Negative pads crop.
Tensor pad_tensor(const Tensor& x, const Dims& low, const Dims& high, const std::string& mode,
                  const Tensor& value);
Tensor broadcast_tensor(const Tensor& x, const Dims& to);
Tensor tile_tensor(const Tensor& x, const Dims& repeats);

}  // namespace pelton::ir
