// SPDX-License-Identifier: Apache-2.0
// Movement, indexing and sorting.
#include <limits>

#include "ir/op.h"
#include "onnx/export/export_context.h"

namespace pelton::onnx {
namespace {

void constant(ExportContext& c) {
  c.results = {c.w.constant(c.node.get_tensor("value"))};
}
void reshape(ExportContext& c) {
  c.results = {c.reshape(c.in(0), c.node.get_dims("dims"))};
}
void transpose(ExportContext& c) {
  c.results = {c.w.op("Transpose", {c.in(0)}, {attr("perm", c.node.get_ints("perm"))})};
}
// How a plan lays a value out in memory is nothing to what it is.
void layout(ExportContext& c) {
  c.results = {c.in(0)};
}
void broadcast_to(ExportContext& c) {
  c.results = {c.w.op("Expand", {c.in(0), c.sizes(c.node.get_dims("dims"))})};
}

void slice(ExportContext& c) {
  const ir::Ints &axes = c.node.get_ints("axes"), &steps = c.node.get_ints("steps");
  const Shape &starts = c.node.get_dims("starts"), &counts = c.node.get_dims("sizes");
  Shape ends;
  for (size_t i = 0; i < axes.size(); ++i) {
    Dim end = starts[i] + counts[i] * steps[i];
    // Walking backwards past the front: -1 would mean the last element.
    if (steps[i] < 0 && end.is_const() && end.value() < 0)
      end = Dim(std::numeric_limits<int32_t>::min());
    else if (steps[i] < 0 && !end.is_const())
      c.refuse("a reversed slice whose size depends on the input sizes");
    ends.push_back(end);
  }
  c.results = {c.w.op("Slice", {c.in(0), c.sizes(starts), c.sizes(ends), c.w.ints(axes), c.w.ints(steps)})};
}
void concat(ExportContext& c) {
  c.results = {c.w.op("Concat", c.all_inputs(), {attr("axis", c.node.get_int("axis"))})};
}

void pad(ExportContext& c) {
  Shape pads = c.node.get_dims("low");
  const Shape& high = c.node.get_dims("high");
  pads.insert(pads.end(), high.begin(), high.end());
  if (c.node.get_text("mode") == "wrap") c.w.need_opset(19);
  c.results = {c.w.op("Pad", {c.in(0), c.sizes(pads), c.in(1)}, {attr("mode", c.node.get_text("mode"))})};
}
void tile(ExportContext& c) {
  c.results = {c.w.op("Tile", {c.in(0), c.sizes(c.node.get_dims("repeats"))})};
}
void reverse(ExportContext& c) {
  const ir::Ints& axes = c.node.get_ints("axes");
  ir::Ints last(axes.size(), -1), end(axes.size(), std::numeric_limits<int32_t>::min());
  c.results = {c.w.op("Slice", {c.in(0), c.w.ints(last), c.w.ints(end), c.w.ints(axes), c.w.ints(last)})};
}

void iota(ExportContext& c) {
  const Shape& dims = c.node.get_dims("dims");
  auto axis = static_cast<size_t>(c.node.get_int("axis"));
  Name line = c.w.op("Range", {c.w.integer(0), c.size(dims[axis]), c.w.integer(1)});
  if (DType t = c.node.get_dtype("dtype"); t != DType::i64) line = c.cast(line, t);
  Shape flat(dims.size(), Dim(1));
  flat[axis] = dims[axis];
  c.results = {c.w.op("Expand", {c.reshape(line, flat), c.sizes(dims)})};
}
void fill(ExportContext& c) {
  c.results = {c.w.op("Expand", {c.reshape(c.in(0), {}), c.sizes(c.node.get_dims("dims"))})};
}
void shape_of(ExportContext& c) {
  c.results = {c.w.op("Shape", {c.in(0)})};
}
void contents(ExportContext& c) {
  c.results = {c.sizes(c.node.get_dims("dims"))};
}
void trilu(ExportContext& c) {
  Name k = c.in(1);
  if (c.has(1) && c.dtype(1) != DType::i64) k = c.cast(k, DType::i64);
  c.results = {c.w.op("Trilu", {c.in(0), k}, {attr("upper", c.node.get_bool("upper"))})};
}

void dynamic_reshape(ExportContext& c) {
  c.results = {c.w.op("Reshape", c.all_inputs(), {attr("allowzero", c.node.get_bool("allow_zero"))})};
}
void dynamic_broadcast(ExportContext& c) {
  c.results = {c.w.op("Expand", c.all_inputs())};
}
void dynamic_slice(ExportContext& c) {
  c.results = {c.w.op("Slice", c.all_inputs())};
}
void dynamic_pad(ExportContext& c) {
  if (c.node.get_text("mode") == "wrap") c.w.need_opset(19);
  c.results = {c.w.op("Pad", c.all_inputs(), {attr("mode", c.node.get_text("mode"))})};
}
void dynamic_tile(ExportContext& c) {
  c.results = {c.w.op("Tile", c.all_inputs())};
}
void dynamic_fill(ExportContext& c) {
  c.results = {c.w.op("Expand", c.all_inputs())};
}
void range(ExportContext& c) {
  c.results = {c.w.op("Range", c.all_inputs())};
}

// Ops that take bf16 only since some version.
void bf16_since(ExportContext& c, size_t input, int64_t opset) {
  if (c.dtype(input) == DType::bf16) c.w.need_opset(opset);
}

void gather(ExportContext& c) {
  c.results = {c.w.op("Gather", c.all_inputs(), {attr("axis", c.node.get_int("axis"))})};
}
void gather_elements(ExportContext& c) {
  c.results = {c.w.op("GatherElements", c.all_inputs(), {attr("axis", c.node.get_int("axis"))})};
}
void gather_nd(ExportContext& c) {
  c.results = {c.w.op("GatherND", c.all_inputs(), {attr("batch_dims", c.node.get_int("batch_dims"))})};
}
void scatter_elements(ExportContext& c) {
  c.results = {
      c.w.op("ScatterElements", c.all_inputs(),
             {attr("axis", c.node.get_int("axis")), attr("reduction", c.node.get_text("reduction"))})};
}
void scatter_nd(ExportContext& c) {
  c.results = {c.w.op("ScatterND", c.all_inputs(), {attr("reduction", c.node.get_text("reduction"))})};
}
void one_hot(ExportContext& c) {
  bf16_since(c, 2, 28);
  c.results = {c.w.op("OneHot", c.all_inputs(), {attr("axis", c.node.get_int("axis"))})};
}
void non_zero(ExportContext& c) {
  c.results = {c.w.op("NonZero", {c.in(0)})};
}
void compress(ExportContext& c) {
  bf16_since(c, 0, 28);
  c.results = {c.w.op("Compress", c.all_inputs(), {attr("axis", c.node.get_int("axis"))})};
}
void unique(ExportContext& c) {
  bf16_since(c, 0, 28);
  std::vector<OnnxAttr> attrs{attr("sorted", c.node.get_bool("sorted"))};
  if (c.node.has_attr("axis")) attrs.push_back(attr("axis", c.node.get_int("axis")));
  c.results = c.w.ops("Unique", {c.in(0)}, attrs, 4);
}
void reverse_sequence(ExportContext& c) {
  bf16_since(c, 0, 28);
  c.results = {c.w.op(
      "ReverseSequence", c.all_inputs(),
      {attr("batch_axis", c.node.get_int("batch_axis")), attr("time_axis", c.node.get_int("time_axis"))})};
}
void topk(ExportContext& c) {
  c.results = c.w.ops("TopK", {c.in(0), c.reshape(c.in(1), {1})},
                      {attr("axis", c.node.get_int("axis")), attr("largest", c.node.get_bool("largest")),
                       attr("sorted", c.node.get_bool("sorted"))},
                      2);
}
void tensor_scatter(ExportContext& c) {
  c.w.need_opset(24);
  c.results = {c.w.op("TensorScatter", c.all_inputs(),
                      {attr("axis", c.node.get_int("axis")),
                       attr("mode", c.node.get_bool("circular") ? "circular" : "linear")})};
}

}  // namespace

void export_shape(ExportTable& table) {
  table.add("constant", constant);
  table.add("reshape", reshape);
  table.add("layout", layout);
  table.add("transpose", transpose);
  table.add("broadcast_to", broadcast_to);
  table.add("slice", slice);
  table.add("concat", concat);
  table.add("pad", pad);
  table.add("tile", tile);
  table.add("reverse", reverse);
  table.add("iota", iota);
  table.add("fill", fill);
  table.add("shape_of", shape_of);
  table.add("contents", contents);
  table.add("trilu", trilu);
  table.add("dynamic_reshape", dynamic_reshape);
  table.add("dynamic_broadcast", dynamic_broadcast);
  table.add("dynamic_slice", dynamic_slice);
  table.add("dynamic_pad", dynamic_pad);
  table.add("dynamic_tile", dynamic_tile);
  table.add("dynamic_fill", dynamic_fill);
  table.add("range", range);
  table.add("gather", gather);
  table.add("gather_elements", gather_elements);
  table.add("gather_nd", gather_nd);
  table.add("scatter_elements", scatter_elements);
  table.add("scatter_nd", scatter_nd);
  table.add("one_hot", one_hot);
  table.add("non_zero", non_zero);
  table.add("compress", compress);
  table.add("unique", unique);
  table.add("reverse_sequence", reverse_sequence);
  table.add("topk", topk);
  table.add("tensor_scatter", tensor_scatter);
}

}  // namespace pelton::onnx
