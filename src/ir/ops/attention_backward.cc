// SPDX-License-Identifier: Apache-2.0
// The gradient of attention from its result and the log-sum-exp of its rows; the probabilities are computed
// again. Letters as in attention.h; g[N,H,L,E] is the gradient of y. With scores s, p = exp(s - lse) and r =
// rowsum(g y): ds = p (g v^T - r), dv = p^T g, and q, k by the product that made s.
#include <cmath>

#include "ir/ops/attention.h"
#include "ir/ops/composite.h"
#include "ir/ops/gradients.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;
using Values = std::vector<ValueId>;

// Inputs: g, q, k, v, y, lse, [mask].
void infer_attention_backward(InferContext& c) {
  for (size_t i : {0, 1, 2, 3, 4}) {
    require_float(c, i, "C1");
    require_same_type(c, 1, i, "C1");
    c.require(c.rank(i) == 4, kShape, "C2", cat("needs rank 4 as input ", i, ", not ", cat(c.shape(i))));
  }
  const Shape &g = c.shape(0), &q = c.shape(1), &k = c.shape(2), &v = c.shape(3);
  for (size_t i : {0, 4}) {
    for (size_t d : {0, 1, 2}) c.same(c.shape(i)[d], q[d], "C2");
    c.same(c.shape(i)[3], v[3], "C2");
  }
  for (size_t d : {0, 1, 2}) c.same(k[d], v[d], "C2");
  c.same(q[0], k[0], "C2");
  c.same(q[3], k[3], "C2");
  c.require(c.dtype(5) == wide_type(c.dtype(1)), ErrorCode::bad_type, "C1",
            cat("needs a log-sum-exp of ", name(wide_type(c.dtype(1))), ", not ", name(c.dtype(5))));
  c.require(c.rank(5) == 3, kShape, "C3", cat("needs lse[N,H,L], not ", cat(c.shape(5))));
  for (size_t d : {0, 1, 2}) c.same(c.shape(5)[d], g[d], "C3");
  if (c.has(6))
    c.require(c.dtype(6) == DType::boolean || c.dtype(6) == c.dtype(1), ErrorCode::bad_type, "C4",
              cat("needs a mask of bool or ", name(c.dtype(1)), ", not ", name(c.dtype(6))));
  for (size_t i : {0, 1, 2}) c.output(i, c.dtype(1), c.shape(i + 1));
}

void eval_attention_backward(EvalContext& c) {
  const Dims &qd = c.in(1).dims(), &kd = c.in(2).dims(), &vd = c.in(3).dims();
  auto batch = static_cast<size_t>(qd[0]), heads = static_cast<size_t>(qd[1]),
       queries = static_cast<size_t>(qd[2]), groups = static_cast<size_t>(kd[1]),
       keys = static_cast<size_t>(kd[2]), depth = static_cast<size_t>(qd[3]),
       width = static_cast<size_t>(vd[3]);
  if (heads && (groups == 0 || heads % groups))
    c.refuse(kShape, cat("has ", heads, " query heads for ", groups, " key heads"));
  std::vector<double> g = to_doubles(c.in(0)), q = to_doubles(c.in(1)), k = to_doubles(c.in(2)),
                      v = to_doubles(c.in(3)), y = to_doubles(c.in(4)), lse = to_doubles(c.in(5)), mask;
  Dims mask_dims, mask_strides, full{qd[0], qd[1], qd[2], kd[2]};
  bool with_mask = c.has(6), mask_is_bool = with_mask && c.in(6).dtype() == DType::boolean;
  if (with_mask) {
    mask = to_doubles(c.in(6));
    mask_dims = c.in(6).dims();
    mask_strides = row_major_strides(mask_dims);
    if (broadcast_dims({mask_dims, full}) != full)
      c.refuse(kShape, cat("cannot broadcast a mask of ", mask_dims, " to ", full));
  }
  double scale = c.node.get_real("scale"), cap = c.node.get_real("softcap");
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(depth));
  bool causal = c.node.get_bool("causal");
  std::vector<double> dq(q.size()), dk(k.size()), dv(v.size());
  for (size_t n = 0; n < batch; ++n)
    for (size_t h = 0; h < heads; ++h)
      for (size_t l = 0; l < queries; ++l) {
        size_t row = (n * heads + h) * queries + l, group = n * groups + h / (heads / groups);
        if (lse[row] == -INFINITY) continue;
        double r = 0;
        for (size_t e = 0; e < width; ++e) r += g[row * width + e] * y[row * width + e];
        for (size_t m = 0; m < keys; ++m) {
          if (causal && m + queries > l + keys) continue;
          size_t key = group * keys + m;
          double score = 0, dp = 0;
          for (size_t d = 0; d < depth; ++d) score += q[row * depth + d] * k[key * depth + d];
          score *= scale;
          double slope = scale;
          if (cap != 0) {
            double t = std::tanh(score / cap);
            score = cap * t;
            slope *= 1 - t * t;
          }
          if (with_mask) {
            Dims index{static_cast<int64_t>(n), static_cast<int64_t>(h), static_cast<int64_t>(l),
                       static_cast<int64_t>(m)};
            double e = mask[static_cast<size_t>(broadcast_offset(index, mask_dims, mask_strides))];
            if (mask_is_bool && e == 0) continue;
            if (!mask_is_bool) score += e;
          }
          double p = std::exp(score - lse[row]);
          for (size_t e = 0; e < width; ++e) {
            dp += g[row * width + e] * v[key * width + e];
            dv[key * width + e] += p * g[row * width + e];
          }
          double ds = p * (dp - r) * slope;
          for (size_t d = 0; d < depth; ++d) {
            dq[row * depth + d] += ds * k[key * depth + d];
            dk[key * depth + d] += ds * q[row * depth + d];
          }
        }
      }
  DType t = c.in(1).dtype();
  c.out(0, from_doubles(t, qd, dq));
  c.out(1, from_doubles(t, kd, dk));
  c.out(2, from_doubles(t, vd, dv));
}

// [N,H,L,X] seen as [N,G,H/G,L,X], over which a key head's tensors broadcast.
class Decomposition {
 public:
  Decomposition(Builder& b, const Node& n)
      : b_(b),
        n_(n),
        t_(b.dtype(n.inputs[1])),
        wide_(wide_type(t_)),
        qs_(b.shape(n.inputs[1])),
        ks_(b.shape(n.inputs[2])),
        each_(Dim::floor_div(qs_[1], ks_[1])) {}

  Values run() {
    ValueId g = queries(0), q = queries(1), k = keys(2), v = keys(3), y = queries(4);
    ValueId lse = b_.reshape(n_.inputs[5], {qs_[0], ks_[1], each_, qs_[2], 1});
    ValueId slope;
    ValueId s = scores(q, k, &slope);
    ValueId none = b_.op("eq", {lse, b_.like(lse, -INFINITY)}), zero = b_.scalar(wide_, 0);
    ValueId p = b_.select(none, zero, b_.op("exp", {b_.sub(s, b_.select(none, zero, lse))}));
    ValueId r = b_.reduce("reduce_sum", b_.mul(g, y), {4}, true);
    ValueId ds = b_.mul(b_.mul(p, b_.sub(product(g, v, false, true), r)), slope);
    return {result(product(ds, k, false, false), 1, false), result(product(ds, q, true, false), 2, true),
            result(product(p, g, true, false), 3, true)};
  }

 private:
  ValueId queries(size_t i) {
    Shape s = b_.shape(n_.inputs[i]);
    return b_.cast(b_.reshape(n_.inputs[i], {s[0], ks_[1], each_, s[2], s[3]}), wide_);
  }
  ValueId keys(size_t i) {
    Shape s = b_.shape(n_.inputs[i]);
    return b_.cast(b_.reshape(n_.inputs[i], {s[0], s[1], 1, s[2], s[3]}), wide_);
  }
  ValueId product(ValueId x, ValueId y, bool transpose_x, bool transpose_y) {
    return b_.op("matmul", {x, y}, {{"transpose_a", transpose_x}, {"transpose_b", transpose_y}});
  }
  ValueId result(ValueId v, size_t input, bool sum_heads) {
    if (sum_heads) v = b_.reduce("reduce_sum", v, {2}, false);
    return b_.cast(b_.reshape(v, b_.shape(n_.inputs[input])), t_);
  }

  // Masked scores, and the derivative of a score by q k^T.
  ValueId scores(ValueId q, ValueId k, ValueId* slope) {
    ValueId s = product(q, k, false, true), scale;
    if (double given = n_.get_real("scale"); given != 0)
      scale = b_.scalar(wide_, given);
    else
      scale = b_.op("rsqrt", {size_scalar(b_, qs_[3], wide_)});
    s = b_.mul(s, scale);
    *slope = scale;
    if (double cap = n_.get_real("softcap"); cap != 0) {
      ValueId t = b_.op("tanh", {b_.div(s, b_.scalar(wide_, cap))});
      s = b_.mul(t, b_.scalar(wide_, cap));
      *slope = b_.mul(b_.sub(b_.scalar(wide_, 1), b_.op("square", {t})), scale);
    }
    ValueId never = b_.scalar(wide_, -INFINITY);
    if (n_.inputs.size() > 6 && n_.inputs[6]) {
      ValueId mask = heads_apart(n_.inputs[6]);
      s = b_.dtype(mask) == DType::boolean ? b_.select(mask, s, never) : b_.add(s, b_.cast(mask, wide_));
    }
    if (n_.get_bool("causal")) {
      auto positions = [&](const Dim& count, size_t axis) {
        Shape dims(2, Dim(1));
        dims[axis] = count;
        return b_.op("iota", {},
                     {{"dims", dims}, {"axis", static_cast<int64_t>(axis)}, {"dtype", DType::i64}});
      };
      ValueId last = b_.add(positions(qs_[2], 0), size_scalar(b_, ks_[2] - qs_[2], DType::i64));
      s = b_.select(b_.op("le", {positions(ks_[2], 1), last}), s, never);
    }
    return s;
  }
  // A mask that broadcasts to [N,H,L,M] as one that does to [N,G,H/G,L,M].
  ValueId heads_apart(ValueId mask) {
    Shape s = b_.shape(mask);
    while (s.size() < 4) s.insert(s.begin(), Dim(1));
    Shape to{s[0], 1, 1, s[2], s[3]};
    if (s[1] != Dim(1)) {
      to[1] = ks_[1];
      to[2] = each_;
    }
    return b_.reshape(mask, to);
  }

  Builder& b_;
  const Node& n_;
  DType t_, wide_;
  Shape qs_, ks_;
  Dim each_;
};
Values decompose_attention_backward(Builder& b, const Node& n) {
  Values all = Decomposition(b, n).run();
  all.resize(n.outputs.size());
  return all;
}

// Five products of the size of the forward pass's two, and the exponentials.
double flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  double scores = static_cast<double>(in[1][0] * in[1][1]) * static_cast<double>(in[1][2] * in[2][2]);
  return scores * (6 * static_cast<double>(in[1][3]) + 4 * static_cast<double>(in[3][3]) + 8);
}

void attention(GradientContext& c) {
  if (c.grad(1) || c.wants(3)) return c.use_decomposition();
  std::vector<ValueId> d =
      c.b.ops("attention_backward", {c.grad(), c.in(0), c.in(1), c.in(2), c.result(0), c.result(1), c.in(3)},
              c.node.attrs, 3);
  for (size_t i : {0, 1, 2})
    if (c.wants(i)) c.set(i, d[i]);
}

}  // namespace

void add_attention_backward(OpRows& rows) {
  OpDef row;
  row.name = "attention_backward";
  row.family = Family::composite;
  row.min_inputs = 6;
  row.max_inputs = 7;
  row.min_outputs = row.max_outputs = 3;
  row.attrs = {{"scale", AttrKind::real, Attr(0.0)},
               {"causal", AttrKind::boolean, Attr(false)},
               {"softcap", AttrKind::real, Attr(0.0)}};
  row.constraints = {"C1: operands of one floating type, lse of f32 (f64 for f64)",
                     "C2: g and y [N,H,L,E], q[N,H,L,D], k[N,G,M,D], v[N,G,M,E]", "C3: lse[N,H,L]",
                     "C4: the mask is bool or of that type"};
  row.infer = infer_attention_backward;
  row.eval = eval_attention_backward;
  row.decompose = decompose_attention_backward;
  row.flops = flops;
  row.precision = Precision::sensitive;
  rows.push_back(std::move(row));
}

void add_attention_gradients(OpRows& rows) {
  set_gradients(rows, {{"attention", attention}});
}

}  // namespace pelton::ir
