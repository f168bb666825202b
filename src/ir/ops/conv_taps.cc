// SPDX-License-Identifier: Apache-2.0
// The taps of convolutions as data: deformable convolution, columns from images and back. Rows and inference;
// evaluation in conv_taps_eval.cc. Letters as in conv.cc; D offset groups, L window positions.
#include "ir/ops/conv_taps.h"

#include "ir/builder.h"
#include "ir/ops/window.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

void infer_deform_conv(InferContext& c) {
  DType t = c.dtype(0);
  for (size_t i = 0; i < c.input_count(); ++i)
    if (c.has(i))
      c.require(supports_float(c.dtype(i)) && c.dtype(i) == t, ErrorCode::bad_type, "C1",
                cat("needs operands of one float type, not ", name(t), " and ", name(c.dtype(i))));
  const Shape &x = c.shape(0), &w = c.shape(1), &offset = c.shape(2);
  c.require(
      x.size() == 4 && w.size() == 4 && offset.size() == 4, kShape, "C2",
      cat("needs data, weights and offsets of rank 4, not ", cat(x), ", ", cat(w), " and ", cat(offset)));
  int64_t groups = c.node.get_int("groups"), shared = c.node.get_int("offset_groups");
  c.require(groups >= 1 && divisible_by(w[0], groups, c.ranges()) != Tri::no, kShape, "C3",
            cat("cannot split ", w[0].str(), " output channels into ", groups, " groups"));
  c.require(shared >= 1 && divisible_by(x[1], shared, c.ranges()) != Tri::no, kShape, "C3",
            cat("cannot split ", x[1].str(), " channels into ", shared, " offset groups"));
  c.same(x[1], w[1] * groups, "C4");
  Shape spatial = infer_window(c, {x[2], x[3]}, {w[2], w[3]});
  Dim taps = w[2] * w[3] * shared;
  Shape wanted{x[0], taps * 2, spatial[0], spatial[1]};
  for (size_t d = 0; d < 4; ++d) c.same(offset[d], wanted[d], "C5");
  if (c.has(3)) {
    c.require(c.rank(3) == 1, kShape, "C6", cat("needs a bias of rank 1, not ", cat(c.shape(3))));
    c.same(c.shape(3)[0], w[0], "C6");
  }
  if (c.has(4)) {
    wanted[1] = taps;
    c.require(c.rank(4) == 4, kShape, "C5", cat("needs a mask of rank 4, not ", cat(c.shape(4))));
    for (size_t d = 0; d < 4; ++d) c.same(c.shape(4)[d], wanted[d], "C5");
  }
  c.output(0, t, {x[0], w[0], spatial[0], spatial[1]});
}

void infer_im2col(InferContext& c) {
  const Shape& x = c.shape(0);
  const Ints& kernel = c.node.get_ints("kernel");
  c.require(x.size() >= 3, kShape, "C1", cat("needs rank 3 or more, not ", cat(x)));
  Shape spatial = infer_window(c, Shape(x.begin() + 2, x.end()), to_shape(kernel));
  c.output(0, c.dtype(0), {x[0], x[1] * element_count(kernel), element_count(spatial)});
}

void infer_col2im(InferContext& c) {
  c.require(supports_number(c.dtype(0)), ErrorCode::bad_type, "C1",
            cat("does not take ", name(c.dtype(0)), " elements"));
  const Shape& x = c.shape(0);
  c.require(x.size() == 3, kShape, "C2", cat("needs columns [N,C*K...,L], not ", cat(x)));
  for (size_t i : {1, 2})
    c.require(is_int(c.dtype(i)) && c.rank(i) == 1 && c.shape(i)[0].is_const(), ErrorCode::bad_type, "C3",
              cat("needs the sizes as integers of rank 1 and fixed length, not ", c.type(i).str()));
  c.same(c.shape(1)[0], c.shape(2)[0], "C3");
  auto rank = static_cast<size_t>(c.shape(1)[0].value());
  auto image = c.contents(1), block = c.contents(2);
  Shape out{x[0]};
  if (block) {
    Dim taps = element_count(*block);
    out.push_back(Dim::floor_div(x[1], taps));
    c.same(out[1] * taps, x[1], "C4");
  } else {
    out.push_back(c.fresh_size(0, 1, {0, x[1].range(c.ranges()).max}));
  }
  for (size_t d = 0; d < rank; ++d) out.push_back(image ? (*image)[d] : c.fresh_size(0, 2 + d, {}));
  if (image && block) {
    Shape windows = infer_window(c, *image, *block);
    c.same(element_count(windows), x[2], "C4");
  }
  c.output(0, c.dtype(0), out);
}

double deform_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>& out) {
  double taps = in[1][0] ? static_cast<double>(element_count(in[1]) / in[1][0]) : 0;
  return (2 + 8) * static_cast<double>(element_count(out[0])) * taps;  // a product and a bilinear read
}
double column_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  return static_cast<double>(element_count(in[0]));
}

}  // namespace

void add_conv_taps(OpRows& rows) {
  OpDef row;
  row.name = "deform_conv";
  row.family = Family::convolution;
  row.min_inputs = 3;
  row.max_inputs = 5;
  row.attrs = window_attrs();
  static const std::vector<AttrDef> group_attrs = {{"groups", AttrKind::integer, Attr(int64_t{1})},
                                                   {"offset_groups", AttrKind::integer, Attr(int64_t{1})}};
  for (const AttrDef& a : group_attrs) row.attrs.push_back(a);
  row.constraints = {"C1: operands have one float type",
                     "C2: data, weights and offsets have rank 4",
                     "C3: groups divide the output channels, offset groups the channels",
                     "C4: x has groups times the channels of w",
                     "C5: offsets [N,2*D*K...,O...] and mask [N,D*K...,O...]",
                     "C6: the bias has one value an output channel",
                     kW1,
                     kW2,
                     kW3};
  row.infer = infer_deform_conv;
  row.eval = eval_deform_conv;
  row.flops = deform_flops;
  row.precision = Precision::accumulates;
  row.sharding = "n*,*,n*->n*";
  row.batching = "merge_batch";
  rows.push_back(row);

  row = OpDef();
  row.name = "im2col";
  row.family = Family::convolution;
  row.attrs = window_attrs();
  static const AttrDef kernel{"kernel", AttrKind::ints, {}};
  row.attrs.push_back(kernel);
  row.constraints = {"C1: x has rank 3 or more", kW1, kW2, kW3};
  row.infer = infer_im2col;
  row.eval = eval_im2col;
  row.precision = Precision::exact;
  row.sharding = "nc*->nc*";
  row.batching = "merge_batch";
  rows.push_back(row);

  row = OpDef();
  row.name = "col2im";
  row.family = Family::convolution;
  row.min_inputs = row.max_inputs = 3;
  row.attrs = window_attrs();
  row.constraints = {"C1: the element type is a number",
                     "C2: columns [N,C*K...,L]",
                     "C3: image and block sizes are integer vectors of one fixed length",
                     "C4: the columns fit the image and the block",
                     kW1,
                     kW2,
                     kW3};
  row.infer = infer_col2im;
  row.eval = eval_col2im;
  row.flops = column_flops;
  row.precision = Precision::accumulates;
  row.sharding = "nc*->nc*";
  row.batching = "merge_batch";
  rows.push_back(std::move(row));
}

}  // namespace pelton::ir
