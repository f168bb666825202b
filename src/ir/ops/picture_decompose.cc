// SPDX-License-Identifier: Apache-2.0
#include "ir/ops/common.h"
#include "ir/ops/picture.h"

namespace pelton::ir {
namespace {

// f32 [to, from]: the taps of each result, rounded as the kernels round them.
Tensor weights_of(const Axis& axis, int from, const PictureResample& r) {
  const FilterTable table = filter_table(axis, r.filter, r.antialias);
  Tensor out = Tensor::zeros(DType::f32, {axis.n, from});
  float* w = out.as_mutable<float>();
  for (int i = 0; i < axis.n; ++i) {
    const auto at = static_cast<size_t>(i);
    for (int k = 0; k < table.count[at]; ++k)
      w[int64_t{i} * from + table.first[at] + k] =
          static_cast<float>(table.weights[at * static_cast<size_t>(table.taps) + static_cast<size_t>(k)]);
  }
  return out;
}

}  // namespace

// In the default mode with fixed sizes: a product with the weights of the rows, then of the columns.
std::vector<ValueId> decompose_picture_resample(Builder& b, const Node& node) {
  ValueId x = node.inputs[0];
  const Shape shape = b.shape(x), dims = node.get_dims("dims");
  const size_t rank = shape.size();
  Dims from(rank, 1), to(rank, 1);  // how many pictures there are does not matter
  for (size_t d = rank - 3; d < rank; ++d) {
    if (!shape[d].is_const() || !dims[d].is_const() || shape[d].value() < 1 || dims[d].value() < 1) return {};
    from[d] = shape[d].value(), to[d] = dims[d].value();
  }
  const auto size = as_dims(node.get_dims("size")), origin = as_dims(node.get_dims("origin"));
  if (!size || !origin || node.get_text("match") != "none") return {};
  const PictureResample r(node, from, to, *size, *origin);
  const int64_t h = r.out_height, w = r.out_width, c = r.channels;
  Shape flat(shape.begin(), shape.end() - 2), rows = shape;
  flat.push_back(int64_t{r.width} * c);
  rows[rank - 3] = h;
  x = b.reshape(b.cast(x, DType::f32), flat);
  x = b.matmul(b.constant(weights_of(r.y, r.height, r)), x);
  x = b.reshape(x, rows);
  x = b.matmul(b.constant(weights_of(r.x, r.width, r)), x);
  rows[rank - 2] = w;
  return {b.reshape(x, rows)};
}

}  // namespace pelton::ir
