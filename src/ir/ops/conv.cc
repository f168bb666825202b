// SPDX-License-Identifier: Apache-2.0
// Convolution and its transpose: rows and inference. Letters: N batch, C input channels, O output channels, G
// groups, S... spatial sizes, K... kernel sizes. Evaluation in conv_eval.cc.
#include "ir/builder.h"
#include "ir/ops/conv_eval.h"
#include "ir/ops/window.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;

bool is_byte(DType t) {
  return t == DType::i8 || t == DType::u8;
}

void check_operands(InferContext& c, bool bytes) {
  DType x = c.dtype(0), w = c.dtype(1);
  c.require(bytes || (supports_float(x) && x == w), ErrorCode::bad_type, "C1",
            cat("needs operands of one float type", c.node.is("conv") ? " or of 8-bit integers" : "",
                ", not ", name(x), " and ", name(w)));
  c.require(
      c.rank(0) >= 3 && c.rank(0) == c.rank(1), kShape, "C2",
      cat("needs data and weights of one rank, 3 or more, not ", cat(c.shape(0)), " and ", cat(c.shape(1))));
}

void check_bias(InferContext& c, DType t, const Dim& channels) {
  if (!c.has(2)) return;
  c.require(c.dtype(2) == t, ErrorCode::bad_type, "C5",
            cat("needs a bias of type ", name(t), ", not ", name(c.dtype(2))));
  c.require(c.rank(2) == 1, kShape, "C5", cat("needs a bias of rank 1, not ", cat(c.shape(2))));
  c.same(c.shape(2)[0], channels, "C5");
}

void infer_conv(InferContext& c) {
  bool bytes = is_byte(c.dtype(0)) && is_byte(c.dtype(1));
  check_operands(c, bytes);
  const Shape &x = c.shape(0), &w = c.shape(1);
  int64_t groups = c.node.get_int("groups");
  c.require(groups >= 1, ErrorCode::usage, "C3", cat("needs 1 group or more, not ", groups));
  c.require(equal(x[1], w[1] * groups, c.ranges()) != Tri::no, kShape, "C4",
            cat("has data with ", x[1].str(), " channels, but weights ", cat(w), " in ", groups,
                " groups need ", (w[1] * groups).str()));
  c.same(x[1], w[1] * groups, "C4");
  c.require(divisible_by(w[0], groups, c.ranges()) != Tri::no, kShape, "C3",
            cat("cannot split ", w[0].str(), " output channels into ", groups, " groups"));
  check_bias(c, bytes ? DType::i32 : c.dtype(0), w[0]);
  for (size_t i : {3, 4}) {
    if (!c.has(i)) continue;
    c.require(bytes && c.dtype(i) == c.dtype(i - 3), ErrorCode::bad_type, "C6",
              cat("needs a zero point of the operand's 8-bit type, not ", name(c.dtype(i))));
    const Shape& z = c.shape(i);
    if (z.empty() || (z.size() == 1 && z[0] == Dim(1))) continue;
    c.require(i == 4 && z.size() == 1, kShape, "C6",
              cat("needs one zero point", i == 4 ? " or one an output channel" : "", ", not ", cat(z)));
    c.same(z[0], w[0], "C6");
  }
  Shape spatial = infer_window(c, Shape(x.begin() + 2, x.end()), Shape(w.begin() + 2, w.end()));
  Shape out{x[0], w[0]};
  out.insert(out.end(), spatial.begin(), spatial.end());
  c.output(0, bytes ? DType::i32 : c.dtype(0), out);
}

void infer_conv_transpose(InferContext& c) {
  check_operands(c, false);
  const Shape &x = c.shape(0), &w = c.shape(1);
  int64_t groups = c.node.get_int("groups");
  c.require(groups >= 1 && divisible_by(x[1], groups, c.ranges()) != Tri::no, kShape, "C3",
            cat("cannot split ", x[1].str(), " channels into ", groups, " groups"));
  c.same(x[1], w[0], "C4");
  check_bias(c, c.dtype(0), w[1] * groups);
  size_t rank = x.size() - 2;
  Window window = window_of(c.node, rank);
  Ints extra = c.node.get_ints("output_padding");
  if (extra.empty()) extra.assign(rank, 0);
  c.require(window.strides.size() == rank && window.dilations.size() == rank && window.low.size() == rank &&
                window.high.size() == rank && extra.size() == rank,
            ErrorCode::usage, "W1", cat("needs strides, dilations and pads for ", rank, " spatial axes"));
  Shape out{x[0], w[1] * groups};
  for (size_t i = 0; i < rank; ++i) {
    c.require(window.strides[i] >= 1 && window.dilations[i] >= 1 && extra[i] >= 0, ErrorCode::usage, "W2",
              cat("needs positive strides and dilations, not ", window.strides, " and ", window.dilations));
    Dim size = (x[i + 2] - 1) * window.strides[i] + (w[i + 2] - 1) * window.dilations[i] + 1 + extra[i] -
               window.low[i] - window.high[i];
    c.require(size.range(c.ranges()).max >= 0, kShape, "W3",
              cat("would yield size ", size.str(), " along spatial axis ", i));
    out.push_back(size);
  }
  c.output(0, c.dtype(0), out);
}

// Multiply-adds: every output (of conv) or input (of its transpose) meets the kernel once a channel pair.
double conv_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>& out) {
  double taps = in[1][0] ? static_cast<double>(element_count(in[1]) / in[1][0]) : 0;
  return 2.0 * static_cast<double>(element_count(out[0])) * taps;
}
double conv_transpose_flops(const Graph&, const Node&, const std::vector<Dims>& in,
                            const std::vector<Dims>&) {
  double taps = in[1][0] ? static_cast<double>(element_count(in[1]) / in[1][0]) : 0;
  return 2.0 * static_cast<double>(element_count(in[0])) * taps;
}

std::vector<AttrDef> with(std::vector<AttrDef> attrs, const std::vector<AttrDef>& more) {
  for (const AttrDef& a : more) attrs.push_back(a);
  return attrs;
}

}  // namespace

void add_conv(OpRows& rows) {
  OpDef row;
  row.name = "conv";
  row.family = Family::convolution;
  row.min_inputs = 2;
  row.max_inputs = 5;
  row.attrs = with(window_attrs(), {{"groups", AttrKind::integer, Attr(int64_t{1})}});
  row.constraints = {"C1: x and w have one float type, or each is i8 or u8",
                     "C2: x and w have one rank, 3 or more",
                     "C3: groups is at least 1 and divides the output channels",
                     "C4: x has groups times the channels of w",
                     "C5: the bias has one value an output channel and the type of the result",
                     "C6: zero points have the 8-bit type of their operand: one, or one an output channel",
                     kW1,
                     kW2,
                     kW3};
  row.infer = infer_conv;
  row.eval = eval_conv;
  row.flops = conv_flops;
  row.precision = Precision::accumulates;
  row.layout = LayoutFreedom::channels;
  row.sharding = "nc*,oc*->no*";
  row.batching = "merge_batch";
  rows.push_back(row);

  row.name = "conv_transpose";
  row.max_inputs = 3;
  row.attrs = with(row.attrs, {{"output_padding", AttrKind::ints, Attr(Ints{})}});
  row.constraints = {"C1: x and w have one float type",
                     "C2: x and w have one rank, 3 or more",
                     "C3: groups is at least 1 and divides the channels of x",
                     "C4: w has one slice a channel of x",
                     "C5: the bias has one value an output channel and the type of the result",
                     kW1,
                     "W2: strides and dilations are at least 1, output_padding at least 0",
                     "W3: no result size is negative"};
  row.infer = infer_conv_transpose;
  row.eval = eval_conv_transpose;
  row.flops = conv_transpose_flops;
  row.sharding = "nc*,co*->no*";
  rows.push_back(std::move(row));
}

}  // namespace pelton::ir
