// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/attention.h"

#include "ir/ops/composite.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

// q[N,H,L,D] k[N,G,M,D] v[N,G,M,E] [mask broadcast to N,H,L,M]: y[N,H,L,E] and, for the backward pass, the
// log of the sum of exponentials of each row [N,H,L].
void infer_attention(InferContext& c) {
  for (size_t i : {0, 1, 2}) {
    require_float(c, i, "C1");
    require_same_type(c, 0, i, "C1");
    c.require(c.rank(i) == 4, kShape, "C2", cat("needs rank 4 as input ", i, ", not ", cat(c.shape(i))));
  }
  const Shape &q = c.shape(0), &k = c.shape(1), &v = c.shape(2);
  Dim batch = c.same(c.same(q[0], k[0], "C2"), v[0], "C2"), keys = c.same(k[2], v[2], "C2");
  c.same(q[3], k[3], "C2");
  Dim groups = c.same(k[1], v[1], "C2");
  if (q[1].is_const() && groups.is_const())
    c.require(groups.value() > 0 ? q[1].value() % groups.value() == 0 : q[1].value() == 0, kShape, "C3",
              cat("has ", q[1].str(), " query heads for ", groups.str(), " key heads"));
  if (c.has(3)) {
    c.require(c.dtype(3) == DType::boolean || c.dtype(3) == c.dtype(0), ErrorCode::bad_type, "C4",
              cat("needs a mask of bool or ", name(c.dtype(0)), ", not ", name(c.dtype(3))));
    const Shape &mask = c.shape(3), full{batch, q[1], q[2], keys};
    bool fits = mask.size() <= 4;
    for (size_t i = 0; fits && i < mask.size(); ++i) {
      const Dim &d = mask[i], &t = full[4 - mask.size() + i];
      fits = equal(d, 1, c.ranges()) != Tri::no || equal(d, t, c.ranges()) != Tri::no;
    }
    c.require(fits, kShape, "C4", cat("cannot broadcast a mask of ", cat(mask), " to ", cat(full)));
  }
  c.output(0, c.dtype(0), {batch, q[1], q[2], v[3]});
  c.output(1, wide_type(c.dtype(0)), {batch, q[1], q[2]});
}

double attention_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  double scores = static_cast<double>(in[0][0] * in[0][1]) * static_cast<double>(in[0][2] * in[1][2]);
  return scores * (2 * static_cast<double>(in[0][3]) + 2 * static_cast<double>(in[2][3]) + 5);
}

// Rotated dims of a head: the attribute, or all.
void infer_rotary(InferContext& c) {
  require_float(c, 0, "C1");
  for (size_t i : {1, 2}) require_same_type(c, 0, i, "C1");
  const Shape& x = c.shape(0);
  int64_t heads = c.node.get_int("heads"), dims = c.node.get_int("dims");
  c.require(x.size() == 4 || (x.size() == 3 && heads > 0), kShape, "C2",
            cat("needs [N,H,L,D], or [N,L,H*D] with the number of heads, not ", cat(x)));
  Dim length = x.size() == 4 ? x[2] : x[1], size = x.size() == 4 ? x[3] : Dim::floor_div(x[2], heads);
  if (x.size() == 3)
    c.require(divisible_by(x[2], heads, c.ranges()) != Tri::no, kShape, "C2",
              cat("cannot split ", x[2].str(), " into ", heads, " heads"));
  Dim rotated = dims > 0 ? Dim(dims) : size;
  c.require(divisible_by(rotated, 2, c.ranges()) != Tri::no, kShape, "C3",
            cat("rotates ", rotated.str(), " dims, an odd number"));
  c.require(at_most(rotated, size, c.ranges()) != Tri::no, kShape, "C3",
            cat("rotates ", rotated.str(), " of ", size.str(), " dims"));
  Dim half = Dim::floor_div(rotated, 2);
  size_t rank = c.has(3) ? 2 : 3;
  for (size_t i : {1, 2}) {
    const Shape& table = c.shape(i);
    c.require(table.size() == rank, kShape, "C4",
              cat("needs input ", i, " of shape ", rank == 2 ? "[positions, dims / 2]" : "[N, L, dims / 2]",
                  ", not ", cat(table)));
    c.same(table.back(), half, "C4");
    if (rank == 3) {
      if (table[0] != Dim(1)) c.same(table[0], x[0], "C4");
      c.same(table[1], length, "C4");
    } else if (i == 2) {
      c.same(table[0], c.shape(1)[0], "C4");
    }
  }
  if (c.has(3)) {
    c.require(is_int(c.dtype(3)), ErrorCode::bad_type, "C1", "needs integer positions");
    c.require(c.rank(3) == 2, kShape, "C4", cat("needs positions[N,L], not ", cat(c.shape(3))));
    if (c.shape(3)[0] != Dim(1)) c.same(c.shape(3)[0], x[0], "C4");
    c.same(c.shape(3)[1], length, "C4");
  }
  c.output(0, c.dtype(0), x);
}
double rotary_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  return 3 * static_cast<double>(element_count(in[0]));
}

}  // namespace

void add_attention(OpRows& rows) {
  OpDef attention;
  attention.name = "attention";
  attention.family = Family::composite;
  attention.min_inputs = 3;
  attention.max_inputs = 4;
  attention.max_outputs = 2;
  attention.attrs = {{"scale", AttrKind::real, Attr(0.0)},
                     {"causal", AttrKind::boolean, Attr(false)},
                     {"softcap", AttrKind::real, Attr(0.0)}};
  attention.constraints = {"C1: operands of one floating type", "C2: q[N,H,L,D], k[N,G,M,D], v[N,G,M,E]",
                           "C3: H is a multiple of G",
                           "C4: the mask is bool or of that type and broadcasts to [N,H,L,M]"};
  attention.infer = infer_attention;
  attention.eval = eval_attention;
  attention.flops = attention_flops;
  attention.decompose = decompose_attention;
  attention.precision = Precision::sensitive;
  rows.push_back(std::move(attention));

  OpDef rotary;
  rotary.name = "rotary";
  rotary.family = Family::composite;
  rotary.min_inputs = 3;
  rotary.max_inputs = 4;
  rotary.attrs = {{"interleaved", AttrKind::boolean, Attr(false)},
                  {"heads", AttrKind::integer, Attr(int64_t{0})},
                  {"dims", AttrKind::integer, Attr(int64_t{0})}};
  rotary.constraints = {"C1: x, cos and sin of one floating type, integer positions",
                        "C2: x is [N,H,L,D] or [N,L,H*D]", "C3: an even number of rotated dims, at most D",
                        "C4: cos and sin hold half of them for each position"};
  rotary.infer = infer_rotary;
  rotary.eval = eval_rotary;
  rotary.flops = rotary_flops;
  rotary.decompose = decompose_rotary;
  rotary.alias = AliasRule::in_place;
  rows.push_back(std::move(rotary));
}

}  // namespace pelton::ir
