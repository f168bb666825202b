// SPDX-License-Identifier: Apache-2.0
// Collectives over a group of W processes, of which the interpreter is the only one: there they are the
// identity. A token orders them; each yields its result and a new token.
#include "ir/ops/composite.h"

namespace pelton::ir {
namespace {

constexpr auto kUsage = ErrorCode::usage;

void require_token(InferContext& c) {
  if (c.has(1))
    c.require(c.type(1).kind == TypeKind::token, ErrorCode::bad_type, "C1",
              cat("needs a token as input 1, not ", c.type(1).str()));
  c.output(1, Type::token());
}
void require_reduction(InferContext& c) {
  const std::string& op = c.node.get_text("op");
  c.require(op == "sum" || op == "mean" || op == "max" || op == "min" || op == "prod", kUsage, "C2",
            cat("has no reduction '", op, "'"));
  c.require(supports_number(c.dtype(0)), ErrorCode::bad_type, "C1",
            cat("does not take ", name(c.dtype(0)), " elements"));
}
// W of the node.
int64_t require_world(InferContext& c) {
  int64_t world = c.node.get_int("world");
  c.require(world >= 1, kUsage, "C3", cat("has a group of ", world));
  return world;
}

void infer_all_reduce(InferContext& c) {
  require_reduction(c);
  require_token(c);
  c.output(0, c.dtype(0), c.shape(0));
}
void infer_all_gather(InferContext& c) {
  Shape out = c.shape(0);
  auto axis = static_cast<size_t>(c.axis(c.node.get_int("axis"), c.rank(0)));
  out[axis] = out[axis] * require_world(c);
  require_token(c);
  c.output(0, c.dtype(0), out);
}
void infer_reduce_scatter(InferContext& c) {
  require_reduction(c);
  Shape out = c.shape(0);
  auto axis = static_cast<size_t>(c.axis(c.node.get_int("axis"), c.rank(0)));
  int64_t world = require_world(c);
  c.require(divisible_by(out[axis], world, c.ranges()) != Tri::no, ErrorCode::bad_shape, "C3",
            cat("cannot split ", out[axis].str(), " over ", world, " processes"));
  out[axis] = Dim::floor_div(out[axis], world);
  require_token(c);
  c.output(0, c.dtype(0), out);
}
void infer_broadcast_from(InferContext& c) {
  int64_t root = c.node.get_int("root");
  c.require(root >= 0, kUsage, "C3", cat("has root ", root));
  require_token(c);
  c.output(0, c.dtype(0), c.shape(0));
}

void eval_alone(EvalContext& c) {
  if (c.node.op->find_attr("world") && c.node.get_int("world") != 1)
    c.refuse(ErrorCode::unsupported_op,
             cat("needs ", c.node.get_int("world"), " processes, the interpreter is one"));
  c.outputs[0] = c.inputs[0];
  if (c.outputs.size() > 1) c.outputs[1] = HostValue::token();
}

OpDef collective(std::string_view name, std::vector<AttrDef> attrs, void (*infer)(InferContext&),
                 std::vector<std::string_view> constraints) {
  OpDef row;
  row.name = name;
  row.family = Family::collective;
  row.max_inputs = 2;
  row.max_outputs = 2;
  row.attrs = std::move(attrs);
  const AttrDef group{"group", AttrKind::text, Attr(std::string("world"))};
  row.attrs.push_back(group);
  row.constraints = std::move(constraints);
  row.infer = infer;
  row.eval = eval_alone;
  row.effects = Effects::ordered;
  row.alias = AliasRule::in_place;
  return row;
}

}  // namespace

void add_collective(OpRows& rows) {
  AttrDef op{"op", AttrKind::text, Attr(std::string("sum"))},
      axis{"axis", AttrKind::integer, Attr(int64_t{0})};
  AttrDef world{"world", AttrKind::integer, Attr(int64_t{1})},
      root{"root", AttrKind::integer, Attr(int64_t{0})};
  constexpr std::string_view operands = "C1: a tensor of a type the op takes, and a token";
  constexpr std::string_view reduction = "C2: the reduction exists", group = "C3: the group fits";
  rows.push_back(collective("all_reduce", {op}, infer_all_reduce, {operands, reduction}));
  rows.push_back(collective("all_gather", {axis, world}, infer_all_gather, {operands, group}));
  rows.push_back(
      collective("reduce_scatter", {op, axis, world}, infer_reduce_scatter, {operands, reduction, group}));
  rows.push_back(collective("broadcast_from", {root}, infer_broadcast_from, {operands, group}));
}

}  // namespace pelton::ir
