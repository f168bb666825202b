// SPDX-License-Identifier: Apache-2.0
#include "passes/fold_norm.h"

#include "passes/channel_affine.h"
#include "passes/fold_branches.h"
#include "passes/rewrite.h"

namespace pelton::passes {

using namespace ir;

namespace {

Tensor scaled(const Tensor& w, const std::vector<double>& scale, int64_t axis) {
  Tensor out = Tensor::zeros(w.dtype(), w.dims());
  auto a = static_cast<size_t>(axis);
  int64_t inner = 1;
  for (size_t d = a + 1; d < w.dims().size(); ++d) inner *= w.dims()[d];
  int64_t channels = w.dims()[a];
  for (int64_t i = 0; i < w.count(); ++i)
    out.set_double(i, w.get_double(i) * scale[static_cast<size_t>(i / inner % channels)]);
  return out;
}

bool into_conv(Graph& g, NodeId id, const Context&) {
  for (size_t i = 0; i < std::min<size_t>(2, g[id].inputs.size()); ++i) {
    ValueId x = input(g, id, i);
    if (!x || !single_use(g, x)) continue;
    NodeId conv = producer(g, x, "conv");
    bool transposed = !conv;
    if (transposed) conv = producer(g, x, "conv_transpose");
    if (!conv || !is_float(g.type(x).dtype) || g[conv].inputs.size() > 3) continue;
    if (transposed && g[conv].get_int("groups") != 1) continue;
    const Tensor* w = g.constant(input(g, conv, 1));
    ValueId bias = input(g, conv, 2);
    const Tensor* bias_value = elements(g, bias);
    if (!w || (bias && !bias_value)) continue;
    int64_t axis = transposed ? 1 : 0, channels = w->dims()[static_cast<size_t>(axis)];
    auto a = affine_of(g, id, x, channels, false);
    if (!a) continue;
    Builder b(g, id);
    b.set_name(g[conv].name);
    std::vector<ValueId> inputs = g[conv].inputs;
    bool scales = false;
    for (double s : a->scale) scales |= s != 1;
    if (scales) inputs[1] = b.constant(scaled(*elements(g, inputs[1]), a->scale, axis));
    if (bias_value || a->shifts()) {
      std::vector<double> values(static_cast<size_t>(channels), 0);
      if (bias_value) values = to_doubles(*bias_value);
      for (size_t c = 0; c < values.size(); ++c) values[c] = values[c] * a->scale[c] + a->shift[c];
      inputs.resize(3);
      inputs[2] = b.constant(from_doubles(w->dtype(), {channels}, values));
    }
    replace(g, id, b.op(g.op(conv).name, inputs, g[conv].attrs));
    return true;
  }
  return false;
}

// A scale behind a product with constant right side of rank 2.
bool into_matmul(Graph& g, NodeId id, const Context&) {
  for (size_t i = 0; i < std::min<size_t>(2, g[id].inputs.size()); ++i) {
    ValueId x = input(g, id, i);
    NodeId product = x && single_use(g, x) ? producer(g, x, "matmul") : NodeId{};
    if (!product || g[product].inputs.size() != 2 || !is_float(g.type(x).dtype)) continue;
    const Tensor* w = elements(g, input(g, product, 1));
    if (!w || w->rank() != 2) continue;
    int64_t axis = g[product].get_bool("transpose_b") ? 0 : 1,
            channels = w->dims()[static_cast<size_t>(axis)];
    auto a = affine_of(g, id, x, channels, true);
    if (!a || a->shifts()) continue;
    Builder b(g, id);
    b.set_name(g[product].name);
    replace(g, id,
            b.op("matmul", {input(g, product, 0), b.constant(scaled(*w, a->scale, axis))}, g[product].attrs));
    return true;
  }
  return false;
}

// A batch norm that has no convolution in front is a multiplication and an addition.
bool to_affine(Graph& g, NodeId id, const Context&) {
  ValueId x = input(g, id, 0);
  const Tensor* scale = elements(g, input(g, id, 1));
  if (!scale || g.type(x).rank() < 2 || g[id].outputs.size() != 1) return false;
  auto a = affine_of(g, id, x, scale->count(), false);
  if (!a) return false;
  Builder b(g, id);
  b.set_name(g[id].name);
  Dims dims(static_cast<size_t>(g.type(x).rank() - 1), 1);
  dims[0] = scale->count();
  DType t = g.type(x).dtype;
  ValueId y = b.mul(x, b.constant(from_doubles(t, dims, a->scale)));
  replace(g, id, b.add(y, b.constant(from_doubles(t, dims, a->shift))));
  return true;
}

const Rule kFold[] = {
    {"fold_norm/into_conv", {"batch_norm", "mul", "div", "add", "sub"}, into_conv},
    {"fold_norm/branches", {"add"}, branches_into_conv},
    {"fold_norm/into_matmul", {"mul", "div"}, into_matmul},
};
const Rule kSplit[] = {{"fold_norm/to_affine", {"batch_norm"}, to_affine}};

}  // namespace

bool fold_norm(Graph& graph, const Context& context) {
  bool changed = apply_rules(graph, kFold, context);
  changed |= apply_rules(graph, kSplit, context);
  return changed;
}

}  // namespace pelton::passes
