// SPDX-License-Identifier: Apache-2.0
// Quantisation. Quotients and products are f32 numbers (f64 for f64 operands), rounded once, before the
// rounding to an integer, so that every back end that computes in f32 agrees in every bit.
#include <cmath>

#include "ir/ops/composite.h"
#include "tensor/float_types.h"

namespace pelton::ir {
namespace {

constexpr auto kShape = ErrorCode::bad_shape;
constexpr auto kType = ErrorCode::bad_type;

bool is_target(DType t) {
  return (is_int(t) && bits(t) <= 16) || (is_float(t) && bits(t) <= 8);
}

// Scale (input 1) and zero point (input 2) of x (input 0): one value, one for each index of `axis`, or with
// `block` one for each run of `block` elements along it.
void require_parameters(InferContext& c) {
  require_float(c, 1, "C2");
  const Shape &x = c.shape(0), &scale = c.shape(1);
  int64_t block = c.node.get_int("block");
  c.require(block >= 0, ErrorCode::usage, "C3", cat("has block ", block));
  if (block > 0) {
    auto axis = static_cast<size_t>(c.axis(c.node.get_int("axis"), c.rank(0)));
    c.require(scale.size() == x.size(), kShape, "C3",
              cat("needs a scale of the rank of ", cat(x), ", not ", cat(scale)));
    for (size_t d = 0; d < x.size(); ++d)
      c.same(scale[d], d == axis ? Dim::ceil_div(x[d], Dim(block)) : x[d], "C3");
  } else if (element_count(scale) != Dim(1)) {
    c.require(scale.size() == 1, kShape, "C3",
              cat("needs one scale or one for each index, not ", cat(scale)));
    c.same(scale[0], x[static_cast<size_t>(c.axis(c.node.get_int("axis"), c.rank(0)))], "C3");
  }
  if (c.has(2)) c.same(element_count(c.shape(2)), element_count(scale), "C3");
}

void infer_quantize(InferContext& c) {
  DType from = c.dtype(0), to = c.node.get_dtype("to");
  c.require(supports_float(from) || from == DType::i32, kType, "C1", cat("does not take ", name(from)));
  c.require(is_target(to), kType, "C1", cat("does not quantise to ", name(to)));
  require_parameters(c);
  if (c.has(2))
    c.require(c.dtype(2) == to, kType, "C2",
              cat("has a zero point of ", name(c.dtype(2)), " for ", name(to)));
  c.output(0, to, c.shape(0));
}
void infer_dequantize(InferContext& c) {
  DType from = c.dtype(0), to = c.node.get_dtype("to");
  c.require(is_target(from) || from == DType::i32, kType, "C1", cat("does not take ", name(from)));
  c.require(supports_float(to), kType, "C1", cat("does not yield ", name(to)));
  require_parameters(c);
  if (c.has(2))
    c.require(c.dtype(2) == from, kType, "C2",
              cat("has a zero point of ", name(c.dtype(2)), " for ", name(from)));
  c.output(0, to, c.shape(0));
}

// Index of the scale of the element at row-major position i.
class Parameters {
 public:
  explicit Parameters(const EvalContext& c) : scale_dims_(c.in(1).dims()), one_(c.in(1).count() == 1) {
    const Tensor& x = c.in(0);
    block_ = c.node.get_int("block");
    if (x.rank() == 0 || (one_ && block_ == 0)) return;
    axis_ = static_cast<size_t>(wrap_axis(c.node.get_int("axis"), x.rank()));
    strides_ = row_major_strides(scale_dims_);
    int64_t size = x.dims()[axis_], expected = block_ > 0 ? (size + block_ - 1) / block_ : size;
    if (scale_dims_[block_ > 0 ? axis_ : 0] != expected)
      c.refuse(kShape, cat("has a scale of shape ", scale_dims_, " for ", x.str(), " along axis ", axis_));
  }
  size_t operator()(const Dims& index) const {
    if (one_ && block_ == 0) return 0;
    if (block_ == 0) return static_cast<size_t>(index[axis_]);
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += (d == axis_ ? index[d] / block_ : index[d]) * strides_[d];
    return static_cast<size_t>(at);
  }

 private:
  Dims scale_dims_, strides_;
  bool one_;
  int64_t block_ = 0;
  size_t axis_ = 0;
};

// Rounds to f32 unless both operands are f64.
double in_compute_type(double v, bool wide) {
  return wide ? v : static_cast<double>(static_cast<float>(v));
}
// Half to even, plus zero, saturated; NaN gives the zero point.
void store_integer(Tensor& out, int64_t i, double quotient, double zero) {
  double v = std::isnan(quotient) ? zero : std::nearbyint(quotient) + zero;
  out.set_double(i, std::min(std::max(v, lowest(out.dtype())), highest(out.dtype())));
}
void store_float(Tensor& out, int64_t i, double v, bool saturate) {
  uint32_t pattern = small_float_from_double(out.dtype(), v, saturate);
  if (bits(out.dtype()) == 8)
    static_cast<uint8_t*>(out.mutable_data())[i] = static_cast<uint8_t>(pattern);
  else
    out.set_double(i, small_float_to_double(out.dtype(), pattern));
}

void eval_quantize(EvalContext& c) {
  const Tensor& x = c.in(0);
  bool wide = x.dtype() == DType::f64 && c.in(1).dtype() == DType::f64,
       saturate = c.node.get_bool("saturate");
  std::vector<double> v = to_doubles(x), scale = to_doubles(c.in(1));
  std::vector<double> zero = doubles_or(c, 2, c.in(1).count(), 0);
  Parameters parameter(c);
  Tensor out = Tensor::zeros(c.node.get_dtype("to"), x.dims());
  int64_t i = 0;
  for_each_index(x.dims(), [&](const Dims& index) {
    size_t p = parameter(index);
    double quotient = in_compute_type(v[static_cast<size_t>(i)] / scale[p], wide);
    if (is_int(out.dtype()))
      store_integer(out, i++, quotient, zero[p]);
    else
      store_float(out, i++, quotient + zero[p], saturate);
  });
  c.out(0, std::move(out));
}

void eval_dequantize(EvalContext& c) {
  std::vector<double> v = to_doubles(c.in(0)), scale = to_doubles(c.in(1));
  std::vector<double> zero = doubles_or(c, 2, c.in(1).count(), 0);
  Parameters parameter(c);
  size_t i = 0;
  for_each_index(c.in(0).dims(), [&](const Dims& index) {
    size_t p = parameter(index);
    v[i] = (v[i] - zero[p]) * scale[p];
    ++i;
  });
  c.out(0, from_doubles(c.node.get_dtype("to"), c.in(0).dims(), v));
}

void infer_dynamic_quantize(InferContext& c) {
  c.require(c.dtype(0) != DType::f64, kType, "C1", "does not take f64");
  require_float(c, 0, "C1");
  c.output(0, DType::u8, c.shape(0));
  c.output(1, DType::f32, {});
  c.output(2, DType::u8, {});
}
// The range of x, made to hold 0, over 255 steps.
void eval_dynamic_quantize(EvalContext& c) {
  const Tensor& x = c.in(0);
  std::vector<double> v = to_doubles(x);
  double low = 0, high = 0;
  for (double e : v) {
    low = std::min(low, e);
    high = std::max(high, e);
  }
  double scale = in_compute_type(in_compute_type(high - low, false) / 255, false);
  double zero = 0;
  if (scale > 0) zero = std::nearbyint(std::min(std::max(in_compute_type(-low / scale, false), 0.0), 255.0));
  Tensor out = Tensor::zeros(DType::u8, x.dims());
  for (int64_t i = 0; i < x.count(); ++i)
    store_integer(out, i, scale > 0 ? in_compute_type(v[static_cast<size_t>(i)] / scale, false) : 0, zero);
  c.out(0, std::move(out));
  c.out(1, Tensor::full(DType::f32, {}, scale));
  c.out(2, Tensor::full(DType::u8, {}, zero));
}

void infer_requantize(InferContext& c) {
  c.require(c.dtype(0) == DType::i32, kType, "C1", cat("takes i32 sums, not ", name(c.dtype(0))));
  DType to = c.node.get_dtype("to");
  c.require(is_int(to) && bits(to) == 8, kType, "C1", cat("yields 8-bit integers, not ", name(to)));
  c.require(c.dtype(1) == DType::f32, kType, "C2", cat("needs an f32 scale, not ", name(c.dtype(1))));
  const Shape& scale = c.shape(1);
  if (element_count(scale) != Dim(1)) {
    c.require(scale.size() == 1, kShape, "C3",
              cat("needs one scale or one for each index, not ", cat(scale)));
    c.same(scale[0], c.shape(0)[static_cast<size_t>(c.axis(c.node.get_int("axis"), c.rank(0)))], "C3");
  }
  if (c.has(2)) {
    c.require(c.dtype(2) == to, kType, "C2",
              cat("has a zero point of ", name(c.dtype(2)), " for ", name(to)));
    require_single(c, 2, "C3");
  }
  c.output(0, to, c.shape(0));
}
void eval_requantize(EvalContext& c) {
  const Tensor& x = c.in(0);
  std::vector<double> scale = to_doubles(c.in(1));
  double zero = c.has(2) ? static_cast<double>(c.in(2).get_int(0)) : 0;
  Tensor out = Tensor::zeros(c.node.get_dtype("to"), x.dims());
  size_t axis = scale.size() == 1 ? 0 : static_cast<size_t>(wrap_axis(c.node.get_int("axis"), x.rank()));
  if (scale.size() != 1 && x.dims()[axis] != static_cast<int64_t>(scale.size()))
    c.refuse(kShape, cat("has ", scale.size(), " scales for ", x.str(), " along axis ", axis));
  int64_t i = 0;
  for_each_index(x.dims(), [&](const Dims& index) {
    double sum = in_compute_type(static_cast<double>(x.get_int(i)), false);
    double s = scale.size() == 1 ? scale[0] : scale[static_cast<size_t>(index[axis])];
    store_integer(out, i++, in_compute_type(sum * s, false), zero);
  });
  c.out(0, std::move(out));
}

double quantize_flops(const Graph&, const Node&, const std::vector<Dims>& in, const std::vector<Dims>&) {
  return 3 * static_cast<double>(element_count(in[0]));
}

OpDef quantization(std::string_view name, int min_inputs, int max_inputs, std::vector<AttrDef> attrs,
                   void (*infer)(InferContext&), void (*eval)(EvalContext&)) {
  OpDef row;
  row.name = name;
  row.family = Family::quantize;
  row.min_inputs = min_inputs;
  row.max_inputs = max_inputs;
  row.attrs = std::move(attrs);
  row.constraints = {"C1: element types the op takes and yields",
                     "C2: a floating scale, and a zero point of the quantised type",
                     "C3: one scale, one for each index of the axis, or one for each block"};
  row.infer = infer;
  row.eval = eval;
  row.flops = quantize_flops;
  row.precision = Precision::sensitive;
  return row;
}

}  // namespace

void add_quantize(OpRows& rows) {
  AttrDef axis{"axis", AttrKind::integer, Attr(int64_t{1})},
      block{"block", AttrKind::integer, Attr(int64_t{0})};
  AttrDef to{"to", AttrKind::dtype, {}};
  rows.push_back(quantization("quantize", 2, 3,
                              {axis, block, to, {"saturate", AttrKind::boolean, Attr(true)}}, infer_quantize,
                              eval_quantize));
  rows.push_back(quantization("dequantize", 2, 3, {axis, block, {"to", AttrKind::dtype, Attr(DType::f32)}},
                              infer_dequantize, eval_dequantize));
  rows.push_back(quantization("dynamic_quantize", 1, 1, {}, infer_dynamic_quantize, eval_dynamic_quantize));
  rows.back().max_outputs = rows.back().min_outputs = 3;
  rows.back().constraints.resize(1);
  rows.push_back(quantization("requantize", 2, 3, {axis, to}, infer_requantize, eval_requantize));
}

}  // namespace pelton::ir
