// SPDX-License-Identifier: Apache-2.0
// transpose, slice, reverse, tile, broadcast_to (of types a tile program does not compute in), concat, pad.
#include <cstring>

#include "backend/cpu/implementations.h"
#include "backend/cpu/move/copy.h"
#include "ir/op.h"

namespace pelton::backend::cpu {
namespace {

int64_t width_of(const TensorSpec& t) {
  return bits(t.dtype) / 8;
}
int64_t normal(int64_t axis, size_t rank) {
  return axis < 0 ? axis + static_cast<int64_t>(rank) : axis;
}

std::string refuse_plain(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  return refuse_layouts(graph, node);
}

// Slices and pads go over channels-last tensors too, as they lie in memory.
std::string refuse_layouts_but_nhwc(const ir::Graph& graph, ir::NodeId node) {
  const ir::Type &x = graph.type(graph[node].inputs[0]), &y = graph.type(graph[node].outputs[0]);
  if (!x.is_tensor() || x.layout.kind != ir::Layout::Kind::channels_last) return refuse_layouts(graph, node);
  if (x.dtype == DType::string || is_sub_byte(x.dtype)) return cat("does not take ", x.str());
  return y.layout == x.layout ? "" : "operand and result differ in layout";
}
std::string refuse_view_copy(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  return graph[node].is("slice") ? refuse_layouts_but_nhwc(graph, node) : refuse_layouts(graph, node);
}
size_t physical_axis(int64_t axis, const TensorSpec& t) {
  int64_t a = normal(axis, t.dims.size());
  physical_dims(t.dims, t.layout, &a);
  return static_cast<size_t>(a);
}

// A copy whose source starts at `start` (elements).
std::unique_ptr<Kernel> copy_kernel(StridedCopy copy, int64_t start, int64_t width) {
  return make_kernel([copy = std::move(copy), start, width](const RunArgs& args) {
    copy.run(static_cast<const std::byte*>(args.in[0]) + start * width, args.out[0]);
  });
}

std::unique_ptr<Kernel> prepare_view_copy(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &y = instance.outputs[0];
  const ir::Node& n = instance.node();
  const size_t rank = x.dims.size();
  const Dims sizes = physical_dims(y.dims, y.layout);
  const std::vector<int64_t> strides = row_major_strides(physical_dims(x.dims, x.layout)),
                             to = row_major_strides(sizes);
  std::vector<int64_t> from = strides;
  int64_t start = 0;
  if (n.is("transpose")) {
    const ir::Ints& perm = n.get_ints("perm");
    for (size_t d = 0; d < rank; ++d) from[d] = strides[static_cast<size_t>(perm[d])];
  } else if (n.is("slice")) {
    const ir::Ints &axes = n.get_ints("axes"), &steps = n.get_ints("steps");
    const Dims starts = instance.dims("starts");
    for (size_t i = 0; i < axes.size(); ++i) {
      const size_t a = physical_axis(axes[i], x);
      from[a] = strides[a] * steps[i];
      start += starts[i] * strides[a];
    }
  } else if (n.is("reverse")) {
    for (int64_t axis : n.get_ints("axes")) {
      const auto a = static_cast<size_t>(normal(axis, rank));
      from[a] = -strides[a];
      start += (x.dims[a] - 1) * strides[a];
    }
  } else {
    PELTON_CHECK(n.is("broadcast_to"), n.op->name);
    const size_t skip = y.dims.size() - rank;
    from.assign(y.dims.size(), 0);
    for (size_t d = 0; d < rank; ++d) from[skip + d] = x.dims[d] == 1 ? 0 : strides[d];
  }
  if (y.count() == 0) return make_kernel([](const RunArgs&) {});
  return copy_kernel(StridedCopy(sizes, from, to, width_of(x)), start, width_of(x));
}

// y[r0, i0, r1, i1, ...] = x[i0, i1, ...]
std::unique_ptr<Kernel> prepare_tile(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &y = instance.outputs[0];
  const std::vector<int64_t> xs = row_major_strides(x.dims), ys = row_major_strides(y.dims);
  Dims sizes;
  std::vector<int64_t> from, to;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    const int64_t repeats = x.dims[d] ? y.dims[d] / x.dims[d] : 0;
    sizes.insert(sizes.end(), {repeats, x.dims[d]});
    from.insert(from.end(), {0, xs[d]});
    to.insert(to.end(), {ys[d] * x.dims[d], ys[d]});
  }
  return copy_kernel(StridedCopy(sizes, from, to, width_of(x)), 0, width_of(x));
}

std::string refuse_concat(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Node& n = graph[node];
  const ir::Type& y = graph.type(n.outputs[0]);
  if (!y.is_tensor() || y.dtype == DType::string || is_sub_byte(y.dtype))
    return cat("does not take ", y.str());
  for (ir::ValueId v : n.inputs) {
    const ir::Type& x = graph.type(v);
    if (!(x.layout == y.layout)) return "operands differ in layout";
    if (y.layout.kind == ir::Layout::Kind::blocked && normal(n.get_int("axis"), y.shape.size()) == 1 &&
        divisible_by(x.shape[1], y.layout.block, graph.symbols->ranges) != Tri::yes)
      return cat("needs channels divisible by ", int{y.layout.block}, ", got ", x.shape[1].str());
  }
  return {};
}
std::unique_ptr<Kernel> prepare_concat(const Instance& instance, const device::Target&) {
  const TensorSpec& y = instance.outputs[0];
  const int64_t logical = normal(instance.node().get_int("axis"), y.dims.size());
  int64_t axis = logical;
  const Dims out = physical_dims(y.dims, y.layout, &axis);
  const std::vector<int64_t> to = row_major_strides(out);
  struct Piece {
    StridedCopy copy;
    size_t input;
    int64_t start;  // bytes in y
  };
  std::vector<Piece> pieces;
  int64_t at = 0;
  for (size_t i = 0; i < instance.inputs.size(); ++i) {
    const Dims dims = physical_dims(instance.inputs[i].dims, y.layout);
    if (element_count(dims) > 0)
      pieces.push_back({StridedCopy(dims, row_major_strides(dims), to, width_of(y)), i,
                        at * to[static_cast<size_t>(axis)] * width_of(y)});
    at += dims[static_cast<size_t>(axis)];
  }
  return make_kernel([pieces = std::move(pieces)](const RunArgs& args) {
    for (const Piece& p : pieces)
      p.copy.run(args.in[p.input], static_cast<std::byte*>(args.out[0]) + p.start);
  });
}

std::string refuse_pad(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  if (std::string why = refuse_layouts_but_nhwc(graph, node); !why.empty()) return why;
  if (const std::string& mode = graph[node].get_text("mode"); mode != "constant")
    return cat("pads with constants only, not by '", mode, "'");
  return {};
}
std::unique_ptr<Kernel> prepare_pad(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &y = instance.outputs[0];
  const Dims low = instance.dims("low"), from_dims = physical_dims(x.dims, x.layout),
             to_dims = physical_dims(y.dims, y.layout);
  const std::vector<int64_t> xs = row_major_strides(from_dims), ys = row_major_strides(to_dims);
  Dims sizes(from_dims.size());
  int64_t from = 0, to = 0;  // first element that is kept
  for (size_t i = 0; i < low.size(); ++i) {
    const size_t d = physical_axis(static_cast<int64_t>(i), x);
    const int64_t skip = std::max<int64_t>(0, -low[i]), begin = std::max<int64_t>(0, low[i]);
    sizes[d] = std::max<int64_t>(0, std::min(from_dims[d] - skip, to_dims[d] - begin));
    from += skip * xs[d];
    to += begin * ys[d];
  }
  const int64_t width = width_of(x);
  const bool inside = element_count(sizes) > 0;
  StridedCopy fill({y.count()}, {0}, {1}, width);
  StridedCopy copy(sizes, xs, ys, width);
  const bool has_value = instance.has(1);
  return make_kernel([=, copy = std::move(copy), fill = std::move(fill)](const RunArgs& args) {
    const uint64_t zero = 0;
    fill.run(has_value ? args.in[1] : &zero, args.out[0]);
    if (inside)
      copy.run(static_cast<const std::byte*>(args.in[0]) + from * width,
               static_cast<std::byte*>(args.out[0]) + to * width);
  });
}

}  // namespace

void add_movement(Registry& registry) {
  registry.add(
      {"cpu.copy", {"transpose", "slice", "reverse", "broadcast_to"}, refuse_view_copy, prepare_view_copy});
  registry.add({"cpu.tile_copies", {"tile"}, refuse_plain, prepare_tile});
  registry.add({"cpu.concat", {"concat"}, refuse_concat, prepare_concat});
  registry.add({"cpu.pad", {"pad"}, refuse_pad, prepare_pad});
}

}  // namespace pelton::backend::cpu
