// SPDX-License-Identifier: Apache-2.0
// Gathering, scattering, selection by value, sorting.
#include "onnx/import/helpers.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

ValueId wide(NodeContext& c, ValueId indices) {
  return c.b.cast(indices, DType::i64);
}

void gather(NodeContext& c) {
  ValueId x = c.in(0);
  c.out(0, c.b.op("gather", {x, wide(c, c.in(1))}, {{"axis", c.axis(c.get_int("axis", 0), c.b.rank(x))}}));
}
void gather_elements(NodeContext& c) {
  ValueId x = c.in(0);
  c.out(0, c.b.op("gather_elements", {x, wide(c, c.in(1))},
                  {{"axis", c.axis(c.get_int("axis", 0), c.b.rank(x))}}));
}
void gather_nd(NodeContext& c) {
  c.out(0, c.b.op("gather_nd", {c.in(0), wide(c, c.in(1))}, {{"batch_dims", c.get_int("batch_dims", 0)}}));
}
void scatter_elements(NodeContext& c) {
  ValueId x = c.in(0);
  c.out(0, c.b.op("scatter_elements", {x, wide(c, c.in(1)), c.in(2)},
                  {{"axis", c.axis(c.get_int("axis", 0), c.b.rank(x))},
                   {"reduction", c.get_text("reduction", "none")}}));
}
void scatter_nd(NodeContext& c) {
  c.out(0, c.b.op("scatter_nd", {c.in(0), wide(c, c.in(1)), c.in(2)},
                  {{"reduction", c.get_text("reduction", "none")}}));
}

void one_hot(NodeContext& c) {
  ValueId indices = c.in(0);
  ValueId depth = to_scalar(c, c.b.cast(c.in(1), DType::i64));
  int64_t axis = c.axis(c.get_int("axis", -1), c.b.rank(indices) + 1);
  c.out(0, c.b.op("one_hot", {wide(c, indices), depth, c.in(2)}, {{"axis", axis}}));
}

void non_zero(NodeContext& c) {
  c.out(0, c.b.op("non_zero", {c.in(0)}));
}

void compress(NodeContext& c) {
  ValueId x = c.in(0);
  int64_t axis = 0;
  if (c.has_attr("axis"))
    axis = c.axis(c.get_int("axis", 0), c.b.rank(x));
  else
    x = c.b.reshape(x, {element_count(c.b.shape(x))});
  c.out(0, c.b.op("compress", {x, c.in(1)}, {{"axis", axis}}));
}

void unique(NodeContext& c) {
  ValueId x = c.in(0);
  Attrs attrs{{"sorted", c.get_int("sorted", 1) != 0}};
  if (c.has_attr("axis")) attrs["axis"] = c.axis(c.get_int("axis", 0), c.b.rank(x));
  auto y = c.b.ops("unique", {x}, std::move(attrs), 4);
  for (size_t i = 0; i < 4; ++i) c.out(i, y[i]);
}

// com.microsoft: in the order in which they come; which of them each element is, and how often each comes.
void ms_unique(NodeContext& c) {
  auto y = c.b.ops("unique", {c.in(0)}, {{"sorted", false}}, 4);
  c.out(0, y[0]);
  c.out(1, y[2]);
  c.out(2, y[3]);
}

void reverse_sequence(NodeContext& c) {
  ValueId x = c.in(0);
  c.out(0, c.b.op("reverse_sequence", {x, c.in(1)},
                  {{"batch_axis", c.axis(c.get_int("batch_axis", 1), c.b.rank(x))},
                   {"time_axis", c.axis(c.get_int("time_axis", 0), c.b.rank(x))}}));
}

void topk(NodeContext& c) {
  ValueId x = c.in(0);
  ValueId k =
      c.opset < 10 ? c.b.scalar(DType::i64, static_cast<double>(c.need_int("k"))) : to_scalar(c, c.in(1));
  auto y = c.b.ops("topk", {x, k},
                   {{"axis", c.axis(c.get_int("axis", -1), c.b.rank(x))},
                    {"largest", c.get_int("largest", 1) != 0},
                    {"sorted", c.get_int("sorted", 1) != 0}},
                   2);
  c.out(0, y[0]);
  c.out(1, y[1]);
}

void tensor_scatter(NodeContext& c) {
  ValueId past = c.in(0);
  std::vector<ValueId> inputs{past, c.in(1)};
  if (c.has(2)) inputs.push_back(c.in(2));
  std::string mode = c.get_text("mode", "linear");
  if (mode != "linear" && mode != "circular")
    c.refuse(ErrorCode::bad_format, cat("mode \"", mode, "\" is neither linear nor circular"));
  c.out(0,
        c.b.op("tensor_scatter", inputs,
               {{"axis", c.axis(c.get_int("axis", -2), c.b.rank(past))}, {"circular", mode == "circular"}}));
}

}  // namespace

void add_index(ImportTable& table) {
  table.add("Gather", gather);
  table.add("GatherElements", gather_elements);
  table.add("GatherND", gather_nd);
  table.add(kMsDomain, "GatherND", gather_nd);
  table.add("Scatter", scatter_elements);
  table.add("ScatterElements", scatter_elements);
  table.add("ScatterND", scatter_nd);
  table.add("OneHot", one_hot);
  table.add("NonZero", non_zero);
  table.add("Compress", compress);
  table.add("Unique", unique);
  table.add(kMsDomain, "Unique", ms_unique);
  table.add("ReverseSequence", reverse_sequence);
  table.add("TopK", topk);
  table.add("TensorScatter", tensor_scatter);
}

}  // namespace pelton::onnx
