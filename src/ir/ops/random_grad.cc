// SPDX-License-Identifier: Apache-2.0
// Dropout is linear in x for given draws: the gradient is dropped and scaled alike, from the same stream.
#include "ir/ops/gradients.h"

namespace pelton::ir {
namespace {

void dropout(GradientContext& c) {
  if (!c.grad()) return;
  if (c.wants(1)) c.refuse("the ratio of dropout has no gradient");
  // Both nodes name the stream, so that passes may rebuild either.
  int64_t stream = c.name_stream();
  Attrs attrs = c.node.attrs;
  attrs["stream"] = stream;
  c.set(0, c.b.op("dropout", {c.grad(), c.in(1)}, attrs));
}

}  // namespace

void add_random_gradients(OpRows& rows) {
  set_gradients(rows, {{"dropout", dropout}});
}

}  // namespace pelton::ir
