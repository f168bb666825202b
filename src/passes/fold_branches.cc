// SPDX-License-Identifier: Apache-2.0
#include "passes/fold_branches.h"

#include <algorithm>

#include "passes/channel_affine.h"

namespace pelton::passes {

using namespace ir;

namespace {

struct Branch {
  NodeId node;
  Dims kernel, strides, dilations, low;
  std::vector<double> weights, bias;  // [O, I, kernel...]
  int64_t outputs = 0, inputs = 0;    // `inputs` a group
};

Dims ints_of(const Node& n, std::string_view name, size_t count) {
  const Ints& v = n.get_ints(name);
  return v.empty() ? Dims(count, 1) : Dims(v.begin(), v.end());
}

// A convolution that only the sum reads, of f32 and with constants.
std::optional<Branch> conv_branch(const Graph& g, ValueId v) {
  const NodeId id = producer(g, v, "conv");
  if (!id || !single_use(g, v) || g.type(v).dtype != DType::f32 || g[id].inputs.size() > 3) return {};
  const Node& n = g[id];
  const ValueId bias = input(g, id, 2);
  const Tensor *w = elements(g, input(g, id, 1)), *b = bias ? elements(g, bias) : nullptr;
  if (!w || w->dtype() != DType::f32 || (bias && !b)) return {};
  Branch out;
  out.node = id;
  out.kernel.assign(w->dims().begin() + 2, w->dims().end());
  out.strides = ints_of(n, "strides", out.kernel.size());
  out.dilations = ints_of(n, "dilations", out.kernel.size());
  for (const Dim& d : n.get_dims("low")) {
    if (!d.is_const()) return {};
    out.low.push_back(d.value());
  }
  out.low.resize(out.kernel.size(), 0);
  out.outputs = w->dims()[0];
  out.inputs = w->dims()[1];
  out.weights = to_doubles(*w);
  out.bias = b ? to_doubles(*b) : std::vector<double>(static_cast<size_t>(out.outputs), 0);
  return out;
}

// Scale and shift of each channel of x as a window of one pixel in the groups of `like`.
std::optional<Branch> scale_branch(const Graph& g, ValueId v, ValueId x, const Branch& like) {
  const NodeId id = g[v].producer;
  const auto groups = g[like.node].get_int("groups");
  if (!id || !single_use(g, v) || like.inputs * groups != like.outputs) return {};
  for (int64_t s : like.strides)
    if (s != 1) return {};
  const Node& n = g[id];
  if (std::find(n.inputs.begin(), n.inputs.end(), x) == n.inputs.end()) return {};
  if (!n.is("batch_norm") && !n.is("mul")) return {};
  const auto affine = affine_of(g, id, x, like.outputs, false);
  if (!affine) return {};
  Branch out = like;
  out.kernel.assign(like.kernel.size(), 1);
  out.low.assign(like.kernel.size(), 0);
  out.weights.assign(static_cast<size_t>(like.outputs * like.inputs), 0);
  for (int64_t o = 0; o < like.outputs; ++o)
    out.weights[static_cast<size_t>(o * like.inputs + o % like.inputs)] =
        affine->scale[static_cast<size_t>(o)];
  out.bias = affine->shift;
  return out;
}

// Where the window of `small` begins in that of `large`, in taps; none if it does not lie within.
std::optional<Dims> place_of(const Branch& small, const Branch& large) {
  Dims at;
  for (size_t i = 0; i < large.kernel.size(); ++i) {
    const int64_t distance = large.low[i] - small.low[i], dilation = large.dilations[i];
    if (small.strides[i] != large.strides[i] || (small.kernel[i] > 1 && small.dilations[i] != dilation) ||
        distance < 0 || distance % dilation != 0 || distance / dilation + small.kernel[i] > large.kernel[i])
      return {};
    at.push_back(distance / dilation);
  }
  return at;
}

void add_into(const Branch& small, const Dims& at, Branch& large) {
  const int64_t taps = element_count(small.kernel), large_taps = element_count(large.kernel);
  for (int64_t tap = 0; tap < taps; ++tap) {
    int64_t rest = tap, to = 0, step = 1;
    for (size_t i = small.kernel.size(); i-- > 0;) {
      to += (at[i] + rest % small.kernel[i]) * step;
      rest /= small.kernel[i];
      step *= large.kernel[i];
    }
    for (int64_t c = 0; c < large.outputs * large.inputs; ++c)
      large.weights[static_cast<size_t>(c * large_taps + to)] +=
          small.weights[static_cast<size_t>(c * taps + tap)];
  }
  for (size_t o = 0; o < large.bias.size(); ++o) large.bias[o] += small.bias[o];
}

}  // namespace

bool branches_into_conv(Graph& g, NodeId id, const Context&) {
  const ValueId sides[2] = {input(g, id, 0), input(g, id, 1)};
  if (sides[0] == sides[1] || !same_shape(g, sides[0], sides[1])) return false;
  for (int k = 0; k < 2; ++k) {
    auto large = conv_branch(g, sides[k]);
    if (!large) continue;
    const ValueId x = input(g, large->node, 0);
    auto small = conv_branch(g, sides[1 - k]);
    if (small && (input(g, small->node, 0) != x || small->outputs != large->outputs ||
                  small->inputs != large->inputs || small->kernel.size() != large->kernel.size()))
      continue;
    if (!small) small = scale_branch(g, sides[1 - k], x, *large);
    if (!small) continue;
    const auto at = place_of(*small, *large);
    if (!at) continue;
    add_into(*small, *at, *large);
    Builder b(g, id);
    b.set_name(g[large->node].name);
    const Dims dims = g.constant(input(g, large->node, 1))->dims();
    const ValueId w = b.constant(from_doubles(DType::f32, dims, large->weights)),
                  bias = b.constant(from_doubles(DType::f32, {large->outputs}, large->bias));
    replace(g, id, b.op("conv", {x, w, bias}, g[large->node].attrs));
    return true;
  }
  return false;
}

}  // namespace pelton::passes
