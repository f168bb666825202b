// SPDX-License-Identifier: Apache-2.0
#include "passes/channel_affine.h"

#include <cmath>

namespace pelton::passes {

using namespace ir;

namespace {

// The constant as one value a channel (axis 1 of rank `rank`, or the last axis), or none.
std::optional<std::vector<double>> per_channel(const Graph& g, ValueId c, int64_t channels, int64_t rank,
                                               bool channel_last) {
  const Tensor* t = elements(g, c);
  if (!t || !is_float(t->dtype())) return std::nullopt;
  if (t->count() == 1 && t->rank() <= rank)
    return std::vector<double>(static_cast<size_t>(channels), t->get_double(0));
  if (t->count() != channels || t->rank() > rank) return std::nullopt;
  int64_t axis = (channel_last ? rank - 1 : 1) - (rank - t->rank());
  if (axis < 0 || t->dims()[static_cast<size_t>(axis)] != channels) return std::nullopt;
  return to_doubles(*t);
}

}  // namespace

std::optional<Affine> affine_of(const Graph& g, NodeId id, ValueId x, int64_t channels, bool channel_last) {
  const Node& n = g[id];
  int64_t rank = g.type(x).rank();
  Affine a;
  if (n.is("batch_norm")) {
    if (channel_last || n.inputs[0] != x || n.outputs.size() != 1) return std::nullopt;
    std::vector<double> p[4];
    for (size_t i = 0; i < 4; ++i) {
      const Tensor* t = elements(g, n.inputs[i + 1]);
      if (!t || t->count() != channels) return std::nullopt;
      p[i] = to_doubles(*t);
    }
    double eps = n.get_real("eps");
    for (size_t c = 0; c < p[0].size(); ++c) {
      a.scale.push_back(p[0][c] / std::sqrt(p[3][c] + eps));
      a.shift.push_back(p[1][c] - p[2][c] * a.scale[c]);
    }
    return a;
  }
  if (!same_shape(g, x, n.outputs[0])) return std::nullopt;
  ValueId c = other_operand(g, id, x);
  if (!c || c == x) return std::nullopt;
  auto values = per_channel(g, c, channels, rank, channel_last);
  if (!values) return std::nullopt;
  auto size = values->size();
  if (n.is("mul")) return Affine{*values, std::vector<double>(size, 0)};
  if (n.is("add")) return Affine{std::vector<double>(size, 1), *values};
  if (n.inputs[0] != x) return std::nullopt;
  if (n.is("sub")) {
    for (double& v : *values) v = -v;
    return Affine{std::vector<double>(size, 1), *values};
  }
  if (n.is("div")) {
    for (double& v : *values) v = 1 / v;
    return Affine{*values, std::vector<double>(size, 0)};
  }
  return std::nullopt;
}

}  // namespace pelton::passes
