// SPDX-License-Identifier: Apache-2.0
// conv, matmul and max_pool of 8-bit integers. Contractions run on the library's integer tensor cores where
// the weights are constant and there is work enough, else by a kernel that takes every form; both give every
// bit of the exact sum.
#include "backend/conv_window.h"
#include "backend/cuda/implementations.h"
#include "backend/cuda/integer/product.h"
#include "backend/cuda/libraries.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

constexpr double kWorthPacking = 1 << 20;  // products

bool is_byte(DType t) {
  return t == DType::i8 || t == DType::u8;
}

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  for (size_t i : {0, 1})
    if (const DType t = input_type(graph, node, i).dtype; !is_byte(t))
      return cat("needs i8 or u8, got ", name(t));
  const bool conv = graph[node].is("conv");
  if (!conv) return refuse_layouts(graph, node);
  const ir::Type& x = input_type(graph, node, 0);
  if (x.rank() > 5) return cat("takes up to 3 spatial dims, not ", x.rank() - 2);
  for (const ir::Layout& l : {x.layout, output_type(graph, node).layout})
    if (l.kind == ir::Layout::Kind::blocked) return cat("does not take layout ", l.str());
  if (!input_type(graph, node, 1).layout.is_plain()) return "needs plain weights";
  return {};
}

// One known value: of an absent zero point 0.
std::optional<int64_t> one_value(const Instance& instance, size_t i) {
  if (!instance.has(i)) return 0;
  const Tensor& t = instance.constants[i];
  if (!t.defined() || t.count() != 1) return std::nullopt;
  return t.get_int(0);
}

// The product of a problem whose weights and parameters are constant, or null.
std::shared_ptr<const IntegerProduct> product_of(const Instance& instance, const IntegerConv& form,
                                                 size_t zeros, bool columns, size_t bias) {
  const double products = 1.0 * form.n * form.places() * form.k * form.c * form.taps();
  const std::optional<int64_t> x_zero = one_value(instance, zeros), w_zero = one_value(instance, zeros + 1);
  const bool known_bias = bias == 0 || !instance.has(bias) || instance.constants[bias].defined();
  if (products < kWorthPacking || form.groups != 1 || !instance.constants[1].defined() || !x_zero ||
      !w_zero || !known_bias || !missing_cublas_lt().empty())
    return nullptr;
  const Tensor none;
  return IntegerProduct::make(form, instance.constants[1], columns, *x_zero, *w_zero,
                              bias > 0 && instance.has(bias) ? instance.constants[bias] : none);
}

std::unique_ptr<Kernel> run_product(std::shared_ptr<const IntegerProduct> product, size_t inputs) {
  KernelNeeds needs;
  needs.scratch_bytes = product->scratch_bytes();
  needs.packed = product->packed();
  for (size_t i = 1; i < inputs; ++i) needs.unread.push_back(i);
  return make_kernel(
      [product](const RunArgs& args) {
        product->run(args.in[0], static_cast<int32_t*>(args.out[0]), args.scratch, stream_of(args));
      },
      std::move(needs));
}

int size_of(int64_t v, const Instance& instance) {
  if (v != static_cast<int>(v))
    fail(ErrorCode::limit, cat("a size of ", v, " in a convolution of bytes"),
         instance.graph.describe(instance.id), "use fewer than 2147483648 of each");
  return static_cast<int>(v);
}

const void* operand(const RunArgs& args, size_t i) {
  return i < args.in.size() ? args.in[i] : nullptr;
}

// Sizes of the data, of the result and of the window between them.
IntegerConv form_of(const Instance& instance, const ConvWindow& window) {
  const TensorSpec &x = instance.inputs[0], &y = instance.outputs[0];
  auto size = [&](int64_t v) { return size_of(v, instance); };
  IntegerConv d;
  d.x.has_sign = x.dtype == DType::i8;
  d.x_last = is_channels_last(x.layout);
  d.y_last = is_channels_last(y.layout);
  d.n = size(x.dims[0]);
  d.c = size(x.dims[1]);
  d.k = size(y.dims[1]);
  const size_t spatial = x.dims.size() - 2;
  for (size_t i = 0; i < spatial; ++i) {
    const size_t to = 3 - spatial + i;
    d.in[to] = size(x.dims[i + 2]);
    d.out[to] = size(y.dims[i + 2]);
    d.kernel[to] = size(window.kernel[i]);
    d.stride[to] = size(window.strides[i]);
    d.dilation[to] = size(window.dilations[i]);
    d.low[to] = size(window.low[i]);
  }
  return d;
}

std::unique_ptr<Kernel> prepare_conv(const Instance& instance) {
  if (instance.outputs[0].count() == 0) return nothing();
  const TensorSpec& w = instance.inputs[1];
  IntegerConv d = form_of(instance, conv_window(instance.node(), instance, w.dims));
  d.w.has_sign = w.dtype == DType::i8;
  d.w_zeros = instance.has(4) && instance.inputs[4].count() > 1;
  d.groups = size_of(instance.node().get_int("groups"), instance);
  if (auto product = product_of(instance, d, 3, false, 2))
    return run_product(std::move(product), instance.inputs.size());
  return make_kernel([d](const RunArgs& args) {
    IntegerConv c = d;
    c.x.data = args.in[0];
    c.w.data = args.in[1];
    c.bias = static_cast<const int32_t*>(operand(args, 2));
    c.x.zero = operand(args, 3);
    c.w.zero = operand(args, 4);
    c.y = static_cast<int32_t*>(args.out[0]);
    PELTON_CUDA(integer_conv(c, stream_of(args)));
  });
}

Dims broadcast(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()), 1);
  for (const Dims* dims : {&a, &b})
    for (size_t i = 0; i < dims->size(); ++i)
      if (const int64_t d = (*dims)[dims->size() - 1 - i]; d != 1) out[out.size() - 1 - i] = d;
  return out;
}

// Strides of an operand of matrices whose batch dims broadcast to `batch`.
void set_batch(const Dims& dims, const Dims& batch, int64_t inner, int64_t* strides) {
  int64_t stride = inner;
  for (size_t i = 0; i < batch.size() && i < dims.size(); ++i) {
    const int64_t d = dims[dims.size() - 1 - i];
    strides[batch.size() - 1 - i] = d == 1 ? 0 : stride;
    stride *= d;
  }
}

// Of the zero points of an operand of `dims`: one, one a row or column, or shaped like the operand.
void set_zeros(const Dims& zero, const Dims& dims, const Dims& batch, int64_t& each, int64_t* strides) {
  const int64_t count = element_count(zero);
  if (count == 1) return;
  if (zero.size() == 1) {
    each = 1;
    return;
  }
  const int64_t rows = zero[zero.size() - 1] * zero[zero.size() - 2];  // one of them is 1
  each = rows == 1 ? 0 : 1;
  if (dims.size() > 2) set_batch(Dims(zero.begin(), zero.end() - 2), batch, rows, strides);
}

std::unique_ptr<Kernel> prepare_matmul(const Instance& instance) {
  const TensorSpec &a = instance.inputs[0], &b = instance.inputs[1], &y = instance.outputs[0];
  if (y.count() == 0) return nothing();
  const bool ta = a.dims.size() > 1 && instance.node().get_bool("transpose_a"),
             tb = b.dims.size() > 1 && instance.node().get_bool("transpose_b");
  auto matrix = [](const TensorSpec& t, bool left) {
    if (t.dims.size() > 1) return t.dims;
    Dims out = t.dims;
    out.insert(left ? out.begin() : out.end(), 1);
    return out;
  };
  const Dims left = matrix(a, true), right = matrix(b, false);
  IntegerMatmul d;
  d.a.has_sign = a.dtype == DType::i8;
  d.b.has_sign = b.dtype == DType::i8;
  d.m = left[left.size() - (ta ? 1 : 2)];
  d.k = left[left.size() - (ta ? 2 : 1)];
  d.n = right[right.size() - (tb ? 2 : 1)];
  d.a_row = ta ? 1 : d.k;
  d.a_k = ta ? d.m : 1;
  d.b_k = tb ? 1 : d.n;
  d.b_column = tb ? d.k : 1;
  const Dims batch_a(left.begin(), left.end() - 2), batch_b(right.begin(), right.end() - 2),
      batch = broadcast(batch_a, batch_b);
  if (batch.size() > static_cast<size_t>(IntegerMatmul::kBatchDims))
    fail(ErrorCode::limit, cat("a product of ", batch.size(), " batch dims"),
         instance.graph.describe(instance.id), cat("use at most ", IntegerMatmul::kBatchDims));
  d.batch_dims = static_cast<int>(batch.size());
  std::copy(batch.begin(), batch.end(), d.batch);
  set_batch(batch_a, batch, d.m * d.k, d.a_batch);
  set_batch(batch_b, batch, d.k * d.n, d.b_batch);
  if (instance.has(2)) set_zeros(instance.inputs[2].dims, left, batch, d.a_zero_row, d.a_zero_batch);
  if (instance.has(3)) set_zeros(instance.inputs[3].dims, right, batch, d.b_zero_column, d.b_zero_batch);

  const int64_t rows = d.m * element_count(batch_a);
  if (!ta && batch_b.empty() && rows <= INT32_MAX && d.k <= INT32_MAX && d.n <= INT32_MAX) {
    IntegerConv form;
    form.x.has_sign = d.a.has_sign;
    form.x_last = form.y_last = true;
    form.n = 1;
    form.c = static_cast<int>(d.k);
    form.k = static_cast<int>(d.n);
    form.in[2] = form.out[2] = static_cast<int>(rows);
    if (auto product = product_of(instance, form, 2, !tb, 0))
      return run_product(std::move(product), instance.inputs.size());
  }
  return make_kernel([d](const RunArgs& args) {
    IntegerMatmul c = d;
    c.a.data = args.in[0];
    c.b.data = args.in[1];
    c.a.zero = operand(args, 2);
    c.b.zero = operand(args, 3);
    c.y = static_cast<int32_t*>(args.out[0]);
    PELTON_CUDA(integer_matmul(c, stream_of(args)));
  });
}

std::string refuse_pool(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  const ir::Type &x = input_type(graph, node, 0), &y = output_type(graph, node);
  if (!is_byte(x.dtype)) return cat("needs i8 or u8, got ", name(x.dtype));
  if (x.rank() > 5) return cat("takes up to 3 spatial dims, not ", x.rank() - 2);
  if (graph[node].outputs.size() > 1) return "yields no indices";
  if (x.layout != y.layout || x.layout.kind == ir::Layout::Kind::blocked)
    return cat("needs one plain or channels-last layout, got ", x.layout.str(), " and ", y.layout.str());
  return {};
}

std::unique_ptr<Kernel> prepare_pool(const Instance& instance, const device::Target&) {
  if (instance.outputs[0].count() == 0) return nothing();
  const size_t spatial = instance.inputs[0].dims.size() - 2;
  return make_kernel(
      [d = form_of(instance, pool_window(instance.node(), instance, spatial))](const RunArgs& args) {
        IntegerConv c = d;
        c.x.data = args.in[0];
        PELTON_CUDA(integer_max_pool(c, args.out[0], stream_of(args)));
      });
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  return instance.node().is("conv") ? prepare_conv(instance) : prepare_matmul(instance);
}

}  // namespace

void add_integer(Registry& registry) {
  registry.add({.name = "cuda.integer",
                .ops = {"conv", "matmul"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
  registry.add({.name = "cuda.integer_pool",
                .ops = {"max_pool"},
                .refuse = refuse_pool,
                .prepare = prepare_pool,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
