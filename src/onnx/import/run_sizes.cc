// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/run_sizes.h"

#include "ir/op.h"
#include "onnx/import/helpers.h"

namespace pelton::onnx {
namespace {

constexpr int kMaxDepth = 16;
constexpr int64_t kMaxSizes = 64;

std::optional<int64_t> count_of(const ir::Graph& g, ValueId v) {
  const ir::Type& t = g.type(v);
  if (!t.is_tensor() || !t.ranked || t.rank() > 1) return {};
  const Dim count = element_count(t.shape);
  return count.is_const() ? std::optional(count.value()) : std::nullopt;
}

// Element `i` of integers, through the nodes that exporters put lists of sizes together with.
std::optional<Dim> entry(NodeContext& c, ValueId v, int64_t i, int depth = 0) {
  const ir::Graph& g = c.b.graph();
  if (auto all = c.contents_of(v)) return (*all).at(static_cast<size_t>(i));
  const ir::NodeId producer = g[v].producer;
  if (!producer || depth > kMaxDepth || !count_of(g, v)) return {};
  const ir::Node& n = g[producer];
  if (n.is("concat")) {
    for (ValueId part : n.inputs) {
      auto count = count_of(g, part);
      if (!count) return {};
      if (i < *count) return entry(c, part, i, depth + 1);
      i -= *count;
    }
    return {};
  }
  const bool same = n.is("reshape") || (n.is("cast") && is_int(g.type(n.inputs[0]).dtype));
  return same ? entry(c, n.inputs[0], i, depth + 1) : std::nullopt;
}

}  // namespace

Contents run_sizes(NodeContext& c, ValueId sizes, std::string_view what) {
  const ir::Type type = c.b.type(sizes);
  if (!is_int(type.dtype)) c.refuse(ErrorCode::bad_type, cat(what, " are ", type.str(), ", not integers"));
  auto count = count_of(c.b.graph(), sizes);
  if (!count || *count > kMaxSizes)
    c.refuse(ErrorCode::bad_shape, cat(what, " are ", type.str(), ", but their number must be known"));
  Contents out;
  for (int64_t i = 0; i < *count; ++i) {
    auto known = entry(c, sizes, i);
    if (!known) {
      ValueId list = c.b.reshape(c.b.cast(sizes, DType::i64), {*count});
      ValueId told = c.b.op("dynamic_fill", {c.b.scalar(DType::u8, 0), slice_axis(c, list, 0, i, 1)});
      known = c.b.shape(told)[0];
    }
    out.push_back(*known);
  }
  return out;
}

}  // namespace pelton::onnx
