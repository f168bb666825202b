// SPDX-License-Identifier: Apache-2.0
// com.microsoft ops of quantised and fused models.
#include <algorithm>
#include <cmath>

#include "onnx/import/conv.h"
#include "onnx/import/helpers.h"
#include "onnx/import/quantize.h"
#include "onnx/import/table.h"

namespace pelton::onnx {
namespace {

// Inputs at `i`: value, scale, zero point.
ValueId real(NodeContext& c, size_t i) {
  return dequantized(c, c.in(i), c.in(i + 1), c.opt(i + 2));
}
void yield(NodeContext& c, ValueId y, size_t scale_at, DType to) {
  c.out(0, quantized(c, y, c.in(scale_at), c.opt(scale_at + 1), to));
}

void qlinear_add(NodeContext& c) {
  yield(c, c.b.add(real(c, 0), real(c, 3)), 6, c.b.dtype(c.in(0)));
}
void qlinear_mul(NodeContext& c) {
  yield(c, c.b.mul(real(c, 0), real(c, 3)), 6, c.b.dtype(c.in(0)));
}
void qlinear_sigmoid(NodeContext& c) {
  yield(c, c.b.op("sigmoid", {real(c, 0)}), 3, c.b.dtype(c.in(0)));
}
void qlinear_leaky_relu(NodeContext& c) {
  ValueId y =
      c.b.op("leaky_relu", {real(c, 0)}, {{"alpha", c.get_real("alpha", static_cast<double>(0.01f))}});
  yield(c, y, 3, c.b.dtype(c.in(0)));
}
void qlinear_softmax(NodeContext& c) {
  ValueId x = real(c, 0);
  int64_t axis = c.axis(c.get_int("axis", -1), c.b.rank(x));
  if (c.get_int("opset", 13) < 13 && axis != c.b.rank(x) - 1) {
    const Shape shape = c.b.shape(x);
    ValueId y = c.b.op("softmax", {flatten_at(c, x, axis)}, {{"axis", int64_t{1}}});
    return yield(c, c.b.reshape(y, shape), 3, c.b.dtype(c.in(0)));
  }
  yield(c, c.b.op("softmax", {x}, {{"axis", axis}}), 3, c.b.dtype(c.in(0)));
}
void qlinear_where(NodeContext& c) {
  ValueId x = dequantized(c, c.in(1), c.in(2), c.in(3)), y = dequantized(c, c.in(4), c.in(5), c.in(6));
  yield(c, c.b.select(c.in(0), x, y), 7, c.b.dtype(c.in(1)));
}
void qlinear_reduce_mean(NodeContext& c) {
  ValueId x = real(c, 0);
  Ints axes = c.get_ints("axes");
  if (axes.empty())
    for (int64_t i = 0; i < c.b.rank(x); ++i) axes.push_back(i);
  yield(c, reduce(c, "reduce_mean", x, c.axes(axes, c.b.rank(x)), c.get_int("keepdims", 1) != 0), 3,
        c.b.dtype(c.in(0)));
}
void qlinear_global_average_pool(NodeContext& c) {
  ValueId x = real(c, 0);
  bool last = c.get_int("channels_last", 0) != 0;
  Ints axes;
  for (int64_t i = last ? 1 : 2; i < c.b.rank(x) - (last ? 1 : 0); ++i) axes.push_back(i);
  yield(c, reduce(c, "reduce_mean", x, axes, true), 3, c.b.dtype(c.in(0)));
}
// y scale, y zero, then value, scale and zero of each part.
void qlinear_concat(NodeContext& c) {
  std::vector<ValueId> parts;
  for (size_t i = 2; i + 2 < c.input_count(); i += 3) parts.push_back(real(c, i));
  if (parts.empty()) c.refuse(ErrorCode::bad_format, "joins nothing");
  ValueId y = concat(c, parts, c.axis(c.need_int("axis"), c.b.rank(parts[0])));
  c.out(0, quantized(c, y, c.in(0), c.in(1), c.b.dtype(c.in(2))));
}

// a, a_scale, a_zero, b, b_scale, b_zero, [c i32], [y_scale], [y_zero]
void qgemm(NodeContext& c) {
  ValueId sum =
      c.b.op("matmul", {c.in(0), c.in(3), quant_parameter(c, c.in(2)), quant_parameter(c, c.in(5))},
             {{"transpose_a", c.get_int("transA", 0) != 0}, {"transpose_b", c.get_int("transB", 0) != 0}});
  if (c.has(6)) sum = c.b.add(sum, c.in(6));
  ValueId scale = c.b.mul(quant_parameter(c, c.in(1)), quant_parameter(c, c.in(4)));
  if (double alpha = c.get_real("alpha", 1); alpha != 1) scale = c.b.mul(scale, c.b.like(scale, alpha));
  if (!c.has(7)) return c.out(0, c.b.mul(c.b.cast(sum, DType::f32), scale));
  c.out(0, requantized(c, sum, scale, c.b.like(scale, 1), c.in(7), c.in(8), -1));
}

// a, b, a_scale, b_scale, [a_zero], [b_zero], [bias]
ValueId integer_product(NodeContext& c, ValueId a, ValueId a_scale, ValueId a_zero, ValueId b,
                        ValueId b_scale, ValueId b_zero, ValueId bias) {
  std::vector<ValueId> inputs{a, b, quant_parameter(c, a_zero), quant_parameter(c, b_zero)};
  while (!inputs.back()) inputs.pop_back();
  ValueId y = c.b.cast(c.b.op("matmul", inputs), DType::f32);
  y = c.b.mul(y, c.b.mul(quant_parameter(c, a_scale), quant_parameter(c, b_scale)));
  return bias ? c.b.add(y, bias) : y;
}
void matmul_integer_to_float(NodeContext& c) {
  c.out(0, integer_product(c, c.in(0), c.in(2), c.opt(4), c.in(1), c.in(3), c.opt(5), c.opt(6)));
}
void dynamic_quantize_matmul(NodeContext& c) {
  auto a = c.b.ops("dynamic_quantize", {c.in(0)}, {}, 3);
  c.out(0, integer_product(c, a[0], a[1], a[2], c.in(1), c.in(2), c.opt(3), c.opt(4)));
}

// a[.., K] times a matrix kept as blocks of n-bit integers: b u8[N, blocks, block * bits / 8], scales [N,
// blocks].
void matmul_nbits(NodeContext& c) {
  int64_t k = c.need_int("K"), n = c.need_int("N"), bits = c.get_int("bits", 4),
          block = c.need_int("block_size");
  constexpr int64_t kMost = int64_t{1} << 30;  // so that no product of two sizes overflows
  if ((bits != 2 && bits != 4 && bits != 8) || std::min({block, k, n}) < 1 || std::max({block, k, n}) > kMost)
    c.refuse(ErrorCode::unsupported_op, cat("has K ", k, ", N ", n, ", bits ", bits, ", block_size ", block));
  if (c.has(4)) c.refuse(ErrorCode::unsupported_op, "a group index is not supported");
  int64_t blocks = (k + block - 1) / block, per_byte = 8 / bits;
  ValueId a = c.in(0), scales = c.b.reshape(c.in(2), {n, blocks, 1});
  // Low bits first: byte / 2^(bits * i) mod 2^bits.
  auto unpack = [&](ValueId bytes, int64_t rows, int64_t columns) {
    ValueId wide = c.b.reshape(bytes, {rows, columns, 1});
    std::vector<uint8_t> shifts;
    for (int64_t i = 0; i < per_byte; ++i) shifts.push_back(static_cast<uint8_t>(bits * i));
    ValueId parts =
        c.b.op("shift_right", {wide, c.b.constant(Tensor::from<uint8_t>({1, 1, per_byte}, shifts))});
    parts = c.b.op("and", {parts, c.b.scalar(DType::u8, static_cast<double>((1 << bits) - 1))});
    return c.b.reshape(parts, {rows, columns * per_byte});
  };
  ValueId q = c.b.reshape(unpack(c.in(1), n * blocks, (block + per_byte - 1) / per_byte), {n, blocks, block});
  DType t = c.b.dtype(scales);
  ValueId zero = c.b.scalar(t, static_cast<double>(1 << (bits - 1)));
  if (c.has(3)) {
    ValueId z = c.in(3);
    if (is_float(c.b.dtype(z))) {
      zero = c.b.reshape(z, {n, blocks, 1});
    } else {
      int64_t columns = (blocks + per_byte - 1) / per_byte;
      z = slice_axis(c, unpack(z, n, columns), 1, 0, blocks);
      zero = c.b.cast(c.b.reshape(z, {n, blocks, 1}), t);
    }
  }
  ValueId w = c.b.mul(c.b.sub(c.b.cast(q, t), zero), scales);
  w = slice_axis(c, c.b.reshape(w, {n, blocks * block}), 1, 0, k);
  ValueId y = c.b.op("matmul", {a, c.b.cast(w, c.b.dtype(a))}, {{"transpose_b", true}});
  c.out(0, c.has(5) ? c.b.add(y, c.in(5)) : y);
}

ValueId activated(NodeContext& c, ValueId x) {
  std::string name = c.get_text("activation", "");
  Floats p = c.get_reals("activation_params");
  auto param = [&](size_t i, double otherwise) { return i < p.size() ? p[i] : otherwise; };
  if (name.empty()) return x;
  if (name == "Relu") return c.b.op("relu", {x});
  if (name == "Tanh") return c.b.op("tanh", {x});
  if (name == "Sigmoid") return c.b.op("sigmoid", {x});
  if (name == "LeakyRelu") return c.b.op("leaky_relu", {x}, {{"alpha", param(0, 0.01)}});
  if (name == "HardSigmoid")
    return c.b.op("hard_sigmoid", {x}, {{"alpha", param(0, 0.2)}, {"beta", param(1, 0.5)}});
  if (name == "Clip")
    return c.b.op("clamp", {x, c.b.like(x, param(0, -INFINITY)), c.b.like(x, param(1, INFINITY))});
  c.refuse(ErrorCode::unsupported_op, cat("activation \"", name, "\" is not supported"));
}

// conv, then + residual (input 3), then the activation
void fused_conv(NodeContext& c) {
  ValueId x = c.in(0), w = c.in(1);
  std::vector<ValueId> inputs{x, w};
  if (c.has(2)) inputs.push_back(c.in(2));
  ValueId y = c.b.op("conv", inputs, conv_attrs(c, x, w));
  if (c.has(3)) y = c.b.add(y, c.in(3));
  c.out(0, activated(c, y));
}
void fused_gemm(NodeContext& c) {
  ValueId y =
      c.b.op("matmul", {c.in(0), c.in(1)},
             {{"transpose_a", c.get_int("transA", 0) != 0}, {"transpose_b", c.get_int("transB", 0) != 0}});
  auto times = [&](ValueId v, double k) { return k == 1 ? v : c.b.mul(v, c.b.like(v, k)); };
  y = times(y, c.get_real("alpha", 1));
  if (c.has(2)) y = c.b.add(y, times(c.in(2), c.get_real("beta", 1)));
  c.out(0, activated(c, y));
}
// Batch dims that stand behind the first axis come to the front: [M,N...,K] to [N...,M,K].
ValueId batch_first(NodeContext& c, size_t i, std::string_view flag) {
  ValueId x = c.in(i);
  if (c.get_int(flag, 0) == 0) return x;
  int64_t rank = c.b.rank(x);
  if (rank < 3) c.refuse(ErrorCode::bad_shape, cat("has ", flag, " for ", c.b.type(x).str()));
  Ints perm;
  for (int64_t d = 1; d + 1 < rank; ++d) perm.push_back(d);
  perm.insert(perm.end(), {0, rank - 1});
  return c.b.transpose(x, perm);
}
void fused_matmul(NodeContext& c) {
  ValueId y =
      c.b.op("matmul", {batch_first(c, 0, "transBatchA"), batch_first(c, 1, "transBatchB")},
             {{"transpose_a", c.get_int("transA", 0) != 0}, {"transpose_b", c.get_int("transB", 0) != 0}});
  if (double alpha = c.get_real("alpha", 1); alpha != 1) y = c.b.mul(y, c.b.like(y, alpha));
  c.out(0, y);
}
void bias_softmax(NodeContext& c) {
  ValueId x = c.b.add(c.in(0), c.in(1));
  c.out(0, c.b.op("softmax", {x}, {{"axis", c.axis(c.get_int("axis", 1), c.b.rank(x))}}));
}
void expand_dims(NodeContext& c) {
  ValueId x = c.in(0);
  c.out(0, c.b.unsqueeze(x, {c.axis(c.need_ints(1, "axis").at(0), c.b.rank(x) + 1)}));
}

}  // namespace

void add_ms_quantize(ImportTable& table) {
  table.add(kMsDomain, "QLinearAdd", qlinear_add);
  table.add(kMsDomain, "QLinearMul", qlinear_mul);
  table.add(kMsDomain, "QLinearSigmoid", qlinear_sigmoid);
  table.add(kMsDomain, "QLinearLeakyRelu", qlinear_leaky_relu);
  table.add(kMsDomain, "QLinearSoftmax", qlinear_softmax);
  table.add(kMsDomain, "QLinearWhere", qlinear_where);
  table.add(kMsDomain, "QLinearReduceMean", qlinear_reduce_mean);
  table.add(kMsDomain, "QLinearGlobalAveragePool", qlinear_global_average_pool);
  table.add(kMsDomain, "QLinearConcat", qlinear_concat);
  table.add(kMsDomain, "QGemm", qgemm);
  table.add(kMsDomain, "MatMulIntegerToFloat", matmul_integer_to_float);
  table.add(kMsDomain, "DynamicQuantizeMatMul", dynamic_quantize_matmul);
  table.add(kMsDomain, "MatMulNBits", matmul_nbits);
  table.add(kMsDomain, "FusedConv", fused_conv);
  table.add(kMsDomain, "FusedGemm", fused_gemm);
  table.add(kMsDomain, "FusedMatMul", fused_matmul);
  table.add(kMsDomain, "TransposeMatMul", fused_matmul);
  table.add(kMsDomain, "BiasSoftmax", bias_softmax);
  table.add(kMsDomain, "ExpandDims", expand_dims);
}

}  // namespace pelton::onnx
