// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ir/ops/attention.h"
#include "ir/ops/composite.h"

namespace pelton::ir {

// scores = softcap(scale q k^T) with what the mask forbids at -inf; with `causal` query l sees keys up to
// l + M - L (the queries are the last L positions). A row that sees no key yields zeros.
void eval_attention(EvalContext& c) {
  const Dims &qd = c.in(0).dims(), &kd = c.in(1).dims(), &vd = c.in(2).dims();
  auto batch = static_cast<size_t>(qd[0]), heads = static_cast<size_t>(qd[1]),
       queries = static_cast<size_t>(qd[2]);
  auto groups = static_cast<size_t>(kd[1]), keys = static_cast<size_t>(kd[2]);
  auto depth = static_cast<size_t>(qd[3]), width = static_cast<size_t>(vd[3]);
  if (heads && (groups == 0 || heads % groups))
    c.refuse(ErrorCode::bad_shape, cat("has ", heads, " query heads for ", groups, " key heads"));
  std::vector<double> q = to_doubles(c.in(0)), k = to_doubles(c.in(1)), v = to_doubles(c.in(2)), mask;
  Dims mask_dims, mask_strides, full{qd[0], qd[1], qd[2], kd[2]};
  bool with_mask = c.has(3), mask_is_bool = with_mask && c.in(3).dtype() == DType::boolean;
  if (with_mask) {
    mask = to_doubles(c.in(3));
    mask_dims = c.in(3).dims();
    mask_strides = row_major_strides(mask_dims);
    if (broadcast_dims({mask_dims, full}) != full)
      c.refuse(ErrorCode::bad_shape, cat("cannot broadcast a mask of ", mask_dims, " to ", full));
  }
  double scale = c.node.get_real("scale"), cap = c.node.get_real("softcap");
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(depth));
  bool causal = c.node.get_bool("causal");
  std::vector<double> y(batch * heads * queries * width, 0), lse(batch * heads * queries), s(keys);
  for (size_t n = 0; n < batch; ++n)
    for (size_t h = 0; h < heads; ++h)
      for (size_t l = 0; l < queries; ++l) {
        size_t row = (n * heads + h) * queries + l, group = n * groups + h / (heads / groups);
        double top = -INFINITY;
        for (size_t m = 0; m < keys; ++m) {
          double sum = 0;
          for (size_t d = 0; d < depth; ++d) sum += q[row * depth + d] * k[(group * keys + m) * depth + d];
          sum *= scale;
          if (cap != 0) sum = cap * std::tanh(sum / cap);
          if (with_mask) {
            Dims index{static_cast<int64_t>(n), static_cast<int64_t>(h), static_cast<int64_t>(l),
                       static_cast<int64_t>(m)};
            double e = mask[static_cast<size_t>(broadcast_offset(index, mask_dims, mask_strides))];
            sum = !mask_is_bool ? sum + e : e != 0 ? sum : -INFINITY;
          }
          if (causal && m + queries > l + keys) sum = -INFINITY;
          s[m] = sum;
          top = std::isnan(sum) ? sum : std::max(top, sum);
        }
        double total = 0;
        if (top != -INFINITY)
          for (size_t m = 0; m < keys; ++m) total += s[m] = std::exp(s[m] - top);
        lse[row] = top == -INFINITY ? -INFINITY : top + std::log(total);
        if (top == -INFINITY) continue;
        for (size_t m = 0; m < keys; ++m)
          for (size_t e = 0; e < width; ++e)
            y[row * width + e] += s[m] / total * v[(group * keys + m) * width + e];
      }
  DType t = c.in(0).dtype();
  c.out(0, from_doubles(t, {qd[0], qd[1], qd[2], vd[3]}, y));
  c.out(1, from_doubles(wide_type(t), {qd[0], qd[1], qd[2]}, lse));
}

// Pairs (a, b) of a head become (a cos - b sin, a sin + b cos): halves of the rotated dims, or neighbours
// when interleaved.
void eval_rotary(EvalContext& c) {
  const Tensor& x = c.in(0);
  bool flat = x.rank() == 3, interleaved = c.node.get_bool("interleaved");
  int64_t batch = x.dims()[0], length = x.dims()[flat ? 1 : 2];
  int64_t heads = flat ? c.node.get_int("heads") : x.dims()[1],
          size = flat ? x.dims()[2] / heads : x.dims()[3];
  int64_t rotated = c.node.get_int("dims") > 0 ? c.node.get_int("dims") : size, half = rotated / 2;
  if (rotated % 2 || rotated > size || (flat && x.dims()[2] % heads))
    c.refuse(ErrorCode::bad_shape, cat("rotates ", rotated, " of ", size, " dims of ", x.str()));
  std::vector<double> v = to_doubles(x), cosine = to_doubles(c.in(1)), sine = to_doubles(c.in(2));
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t l = 0; l < length; ++l) {
      int64_t row;
      if (c.has(3)) {
        int64_t rows = c.in(1).dims()[0], of = c.in(3).dims()[0] == 1 ? 0 : n;
        row = c.in(3).get_int(of * length + l);
        if (row < 0 || row >= rows)
          c.refuse(ErrorCode::bad_shape, cat("has position ", row, " in tables of ", rows));
      } else {
        row = (c.in(1).dims()[0] == 1 ? 0 : n) * length + l;
      }
      for (int64_t h = 0; h < heads; ++h) {
        int64_t at = flat ? ((n * length + l) * heads + h) * size : ((n * heads + h) * length + l) * size;
        for (int64_t k = 0; k < half; ++k) {
          double& a = v[static_cast<size_t>(at + (interleaved ? 2 * k : k))];
          double& b = v[static_cast<size_t>(at + (interleaved ? 2 * k + 1 : half + k))];
          double co = cosine[static_cast<size_t>(row * half + k)],
                 si = sine[static_cast<size_t>(row * half + k)];
          double rotated_a = a * co - b * si;
          b = a * si + b * co;
          a = rotated_a;
        }
      }
    }
  c.out(0, from_doubles(x.dtype(), x.dims(), v));
}

}  // namespace pelton::ir
