// SPDX-License-Identifier: Apache-2.0
// Slice, Pad, CenterCropPad, DepthToSpace and SpaceToDepth.
#include <algorithm>
#include <numeric>

#include "onnx/import/helpers.h"
#include "onnx/import/shape_math.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

void slice(NodeContext& c) {
  ValueId x = c.in(0);
  int64_t rank = c.b.rank(x);
  std::optional<Contents> starts, ends;
  std::optional<Ints> axes, steps;
  if (c.opset < 10) {
    starts = Contents(to_shape(c.get_ints("starts")));
    ends = Contents(to_shape(c.get_ints("ends")));
    if (c.has_attr("axes")) axes = c.get_ints("axes");
  } else {
    starts = c.contents_of(c.in(1));
    ends = c.contents_of(c.in(2));
    auto known = [&](size_t i) -> std::optional<Ints> {
      auto t = c.value_of(c.in(i));
      return t ? std::optional(to_ints(*t)) : std::nullopt;
    };
    if (c.has(3)) axes = c.need_ints(3, "axes");
    if (c.has(4)) steps = known(4);
    if (c.has(4) && !steps) starts.reset();
  }
  size_t count = starts ? starts->size() : 0;
  if (!axes) {
    auto sliced = static_cast<int64_t>(count);
    if (!starts) {
      const Shape& listed = c.b.shape(c.in(1));
      if (listed.size() != 1)
        c.refuse(ErrorCode::bad_shape, cat("needs a list of starts, not ", cat(listed)));
      sliced = c.need_const(listed[0], "the number of starts");
    }
    if (sliced > rank)
      c.refuse(ErrorCode::bad_shape, cat("has ", sliced, " starts for an input of rank ", rank));
    axes = Ints(static_cast<size_t>(sliced));
    std::iota(axes->begin(), axes->end(), 0);
  }
  for (int64_t& a : *axes) a = c.axis(a, rank);
  if (starts && ends) {
    if (!steps) steps = Ints(count, 1);
    if (ends->size() != count || axes->size() != count || steps->size() != count)
      c.refuse(ErrorCode::bad_shape, cat("has ", count, " starts, ", ends->size(), " ends, ", axes->size(),
                                         " axes and ", steps->size(), " steps"));
    Shape first, sizes;
    for (size_t i = 0; i < count; ++i) {
      if ((*steps)[i] == 0) c.refuse(ErrorCode::bad_format, "has step 0");
      auto r = slice_range(c.b.shape(x)[static_cast<size_t>((*axes)[i])], (*starts)[i], (*ends)[i],
                           (*steps)[i], c.ranges());
      if (!r) break;
      first.push_back(r->start);
      sizes.push_back(r->count);
    }
    if (first.size() == count)
      return c.out(0, count
                          ? c.b.op("slice", {x},
                                   {{"axes", *axes}, {"starts", first}, {"sizes", sizes}, {"steps", *steps}})
                          : x);
  }
  auto wide = [&](ValueId v) { return v ? c.b.cast(v, DType::i64) : v; };
  if (c.opset < 10) c.refuse(ErrorCode::bad_shape, "cannot resolve the bounds for every size of the input");
  c.out(0, c.b.op("dynamic_slice", {x, wide(c.in(1)), wide(c.in(2)), c.b.ints(*axes), wide(c.opt(4))}));
}

void pad(NodeContext& c) {
  ValueId x = c.in(0), value;
  auto rank = static_cast<size_t>(c.b.rank(x));
  std::optional<Contents> pads;
  Ints axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (c.opset < 11) {
    pads = Contents(to_shape(c.get_ints(c.opset < 2 ? "paddings" : "pads")));
    value = c.b.like(x, c.get_real("value", 0));
  } else {
    pads = c.contents_of(c.in(1));
    if (c.has(2)) value = to_scalar(c, c.in(2));
    if (c.has(3)) {
      axes = c.need_ints(3, "axes");
      for (int64_t& a : axes) a = c.axis(a, static_cast<int64_t>(rank));
    }
  }
  std::string mode = c.get_text("mode", "constant");
  if (mode != "constant") value = {};
  if (!pads)
    return c.out(0, c.b.op("dynamic_pad",
                           {x, c.b.cast(c.in(1), DType::i64), value, c.has(3) ? c.b.ints(axes) : ValueId{}},
                           {{"mode", mode}}));
  for (size_t i = 0; i < axes.size(); ++i)
    if (std::find(axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(i), axes[i]) !=
        axes.begin() + static_cast<std::ptrdiff_t>(i))
      c.refuse(ErrorCode::bad_shape, cat("names axis ", axes[i], " twice"));
  if (pads->size() != 2 * axes.size())
    c.refuse(ErrorCode::bad_shape, cat("has ", pads->size(), " pads for ", axes.size(), " axes"));
  Shape low(rank, Dim(0)), high(rank, Dim(0));
  for (size_t i = 0; i < axes.size(); ++i) {
    low[static_cast<size_t>(axes[i])] = (*pads)[i];
    high[static_cast<size_t>(axes[i])] = (*pads)[axes.size() + i];
  }
  std::vector<ValueId> inputs{x};
  if (value) inputs.push_back(value);
  c.out(0, c.b.op("pad", inputs, {{"low", low}, {"high", high}, {"mode", mode}}));
}

void center_crop_pad(NodeContext& c) {
  ValueId x = c.in(0);
  auto rank = static_cast<size_t>(c.b.rank(x));
  Contents target = c.need_contents(1, "the target shape");
  Ints axes = c.get_ints("axes");
  if (axes.empty()) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (axes.size() != target.size())
    c.refuse(ErrorCode::bad_shape, cat("has ", target.size(), " sizes for ", axes.size(), " axes"));
  Shape low(rank, Dim(0)), high(rank, Dim(0));
  for (size_t i = 0; i < axes.size(); ++i) {
    auto d = static_cast<size_t>(c.axis(axes[i], static_cast<int64_t>(rank)));
    // Cropping drops the odd element at the end, padding adds it there.
    int64_t size = c.need_const(c.b.shape(x)[d], "an axis to crop or pad"),
            want = c.need_const(target[i], "a target size");
    int64_t before = want >= size ? (want - size) / 2 : -((size - want) / 2);
    low[d] = before;
    high[d] = want - size - before;
  }
  c.out(0, c.b.op("pad", {x}, {{"low", low}, {"high", high}, {"mode", std::string("constant")}}));
}

struct Blocks {
  ValueId x;
  Dim n, channels, height, width;
  int64_t size;
  bool crd;
};
Blocks blocks(NodeContext& c) {
  ValueId x = c.in(0);
  const Shape shape = c.b.shape(x);
  int64_t size = c.need_int("blocksize");
  constexpr int64_t kLargest = 1 << 20;  // its square is a size
  if (shape.size() != 4 || size < 1 || size > kLargest)
    c.refuse(ErrorCode::bad_shape,
             cat("takes rank 4 and a block of 1 to ", kLargest, ", not ", c.b.type(x).str(), " and ", size));
  std::string mode = c.get_text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD")
    c.refuse(ErrorCode::bad_format, cat("mode \"", mode, "\" is neither DCR nor CRD"));
  return {x, shape.at(0), shape.at(1), shape.at(2), shape.at(3), size, mode == "CRD"};
}

void depth_to_space(NodeContext& c) {
  Blocks k = blocks(c);
  Dim depth = Dim::floor_div(k.channels, k.size * k.size), s = k.size;
  const Shape crd{k.n, depth, s, s, k.height, k.width}, dcr{k.n, s, s, depth, k.height, k.width};
  ValueId y = k.crd ? c.b.transpose(c.b.reshape(k.x, crd), {0, 1, 4, 2, 5, 3})
                    : c.b.transpose(c.b.reshape(k.x, dcr), {0, 3, 4, 1, 5, 2});
  c.out(0, c.b.reshape(y, {k.n, depth, k.height * s, k.width * s}));
}

void space_to_depth(NodeContext& c) {
  Blocks k = blocks(c);
  Dim h = Dim::floor_div(k.height, k.size), w = Dim::floor_div(k.width, k.size), s = k.size;
  ValueId y = c.b.reshape(k.x, {k.n, k.channels, h, s, w, s});
  y = c.b.transpose(y, k.crd ? Ints{0, 1, 3, 5, 2, 4} : Ints{0, 3, 5, 1, 2, 4});
  c.out(0, c.b.reshape(y, {k.n, k.channels * (k.size * k.size), h, w}));
}

}  // namespace

void add_slice_pad(ImportTable& table) {
  table.add("Slice", slice);
  table.add("Pad", pad);
  table.add("CenterCropPad", center_crop_pad);
  table.add("DepthToSpace", depth_to_space);
  table.add("SpaceToDepth", space_to_depth);
}

}  // namespace pelton::onnx
