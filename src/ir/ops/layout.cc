// SPDX-License-Identifier: Apache-2.0
// Ops that change no value: layout(x) {to: text}, the same in another physical layout ("plain", "nhwc", "c8",
// "c16"), and after(x, y...), which is x once the y are made: what is computed again for the backward pass
// reads its operands through it, so that it neither merges with the first computation nor runs before it is
// needed.
#include "ir/ops/common.h"

namespace pelton::ir {
namespace {

void infer_layout(InferContext& c) {
  const std::string& to = c.node.get_text("to");
  c.require(!c.type(0).is_tensor() || c.rank(0) >= 3, ErrorCode::bad_shape, "C1",
            cat("needs a batch, channels and spatial dims, not ", c.type(0).str()));
  Type t = Type::tensor(c.dtype(0), c.shape(0));
  if (to == "nhwc") {
    t.layout.kind = Layout::Kind::channels_last;
  } else if (to == "c8" || to == "c16") {
    t.layout.kind = Layout::Kind::blocked;
    t.layout.block = to == "c8" ? 8 : 16;
  } else {
    c.require(to == "plain", ErrorCode::usage, "C2", cat("knows plain, nhwc, c8 and c16, not '", to, "'"));
  }
  c.output(0, std::move(t));
}

// Host tensors are always plain: layouts are a matter of buffers in a plan.
void eval_layout(EvalContext& c) {
  c.out(0, c.in(0));
}

void infer_after(InferContext& c) {
  c.output(0, c.type(0));
}
void eval_after(EvalContext& c) {
  c.outputs[0] = c.inputs[0];
}

}  // namespace

void add_layout(OpRows& rows) {
  OpDef row;
  row.name = "layout";
  row.family = Family::shape;
  row.attrs = {{"to", AttrKind::text, {}}};
  row.constraints = {"C1: x has rank 3 or more", "C2: the layout is one that exists"};
  row.infer = infer_layout;
  row.eval = eval_layout;
  row.precision = Precision::exact;
  row.layout = LayoutFreedom::channels;
  row.sharding = row.batching = "any";
  rows.push_back(std::move(row));

  row = OpDef();
  row.name = "after";
  row.family = Family::shape;
  row.max_inputs = -1;
  row.infer = infer_after;
  row.eval = eval_after;
  row.precision = Precision::exact;
  row.layout = LayoutFreedom::any_same;
  row.alias = AliasRule::view;
  row.sharding = row.batching = "any";
  rows.push_back(std::move(row));
}

}  // namespace pelton::ir
