// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/onednn/conv_phases.h"

#include "backend/conv_window.h"
#include "backend/cpu/onednn/post_ops.h"
#include "runtime/late_weights.h"

namespace pelton::backend::cpu::onednn {
namespace {

// Below, what the library needs to make its primitive is no more than a few runs.
constexpr int64_t kLongLine = 8192;

// w[C,O,K] as the weights [s*O,C,A] of the phases: phase r, output o, tap a holds tap s*(A-1-a) + r.
Tensor phase_weights(const Tensor& w, int64_t stride, int64_t taps) {
  runtime::LateWeights::instance().ready(w.data());
  const Dims d = w.dims();
  Tensor out = Tensor::zeros(DType::f32, {stride * d[1], d[0], taps});
  const auto* from = static_cast<const float*>(w.data());
  auto* to = static_cast<float*>(out.mutable_data());
  for (int64_t c = 0; c < d[0]; ++c)
    for (int64_t o = 0; o < d[1]; ++o)
      for (int64_t k = 0; k < d[2]; ++k)
        to[((k % stride * d[1] + o) * d[0] + c) * taps + taps - 1 - k / stride] =
            from[(c * d[1] + o) * d[2] + k];
  return out;
}

// b[O], once a phase.
Tensor phase_bias(const Tensor& b, int64_t stride) {
  runtime::LateWeights::instance().ready(b.data());
  Tensor out(DType::f32, {stride * b.count()});
  for (int64_t r = 0; r < stride; ++r)
    std::copy_n(static_cast<const float*>(b.data()), b.count(),
                static_cast<float*>(out.mutable_data()) + r * b.count());
  return out;
}

}  // namespace

std::unique_ptr<Kernel> prepare_phases(const Group& group, const Instance& instance) {
  const ir::Node& n = group.node();
  const TensorSpec x = spec_of(group.operands[0], DType::f32, instance), y = instance.outputs[0];
  const Tensor& w = group.operands[1].constant;
  if (!n.is("conv_transpose") || x.dims.size() != 3 || n.get_int("groups") != 1 || x.dtype != DType::f32 ||
      y.dtype != DType::f32 || !w.defined() || w.dtype() != DType::f32 || y.dims[2] < kLongLine)
    return nullptr;
  const ConvWindow window = conv_window(n, instance, w.dims());
  const int64_t stride = window.strides[0], kernel = window.kernel[0], low = window.low[0];
  if (stride < 2 || window.dilations[0] != 1 || low < 0) return nullptr;
  const int64_t taps = (kernel + stride - 1) / stride, rows = x.dims[2] + taps - 1, outputs = y.dims[1];
  if (low + y.dims[2] > rows * stride) return nullptr;  // padding of the output beyond all products

  GroupOperand bias = group.operands.size() > 2 ? group.operands[2] : GroupOperand();
  size_t first = 0;
  if (!bias.present() && !group.steps.empty() && is_bias(group.steps[0], 3, 1)) {
    bias = group.steps[0].operand;
    first = 1;
  }
  if (bias.present() &&
      (!bias.constant.defined() || bias.constant.dtype() != DType::f32 || bias.constant.count() != outputs))
    return nullptr;
  PostOps post = post_ops_of(group, first, group.steps.size(), instance, 3,
                             [](const TensorSpec& spec) { return desc_of(spec); });
  if (!post.operands.empty()) return nullptr;
  dnnl::primitive_attr attr = attributes();
  attr.set_post_ops(post.ops);

  const Desc given = desc_of(x), z({x.dims[0], stride * outputs, rows}, Type::f32, Tag::acb);
  const Desc read = x.layout.is_plain() ? any_desc(x.dims, DType::f32) : given;
  const Desc biases = bias.present() ? Desc({stride * outputs}, Type::f32, Tag::x) : Desc();
  const Dims dims{stride * outputs, x.dims[1], taps};
  const dnnl::convolution_forward::primitive_desc pd(
      engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, read,
      any_desc(dims, DType::f32), biases, z, {1}, {0}, {taps - 1}, {taps - 1}, attr, /*allow_empty=*/true);
  if (!pd || is_reference(pd)) return nullptr;

  auto sequence = std::make_unique<Sequence>();
  Place x_at = place_of(group.operands[0], *sequence);
  if (pd.src_desc() != given) x_at = sequence->add_reorder(given, x_at, pd.src_desc());
  const Tensor phases = phase_weights(w, stride, taps);
  Tensor packed(DType::u8, {static_cast<int64_t>(pd.weights_desc().get_size())});
  dnnl::memory source(plain_desc(dims, DType::f32), engine(), const_cast<void*>(phases.data()));
  dnnl::memory target(pd.weights_desc(), engine(), packed.mutable_data());
  dnnl::stream stream(engine());
  dnnl::reorder(source, target).execute(stream, source, target);
  stream.wait();

  const Place z_at = sequence->reserve(z);
  std::vector<Argument> arguments = {{DNNL_ARG_SRC, pd.src_desc(), x_at},
                                     {DNNL_ARG_WEIGHTS, pd.weights_desc(), sequence->keep(std::move(packed))},
                                     {DNNL_ARG_DST, z, z_at}};
  if (bias.present())
    arguments.push_back({DNNL_ARG_BIAS, biases, sequence->keep(phase_bias(bias.constant, stride))});
  sequence->add(dnnl::convolution_forward(pd), std::move(arguments));
  // Rows q of all phases, one after another, are rows s*q + r of the whole result, of which `low` are cut
  // off.
  const Desc cut(y.dims, Type::f32, {rows * stride * outputs, 1, outputs});
  sequence->add_reorder(cut, {Place::scratch, z_at.index + low * outputs * int64_t{sizeof(float)}},
                        desc_of(y), output(0));
  sequence->seal();
  return sequence;
}

}  // namespace pelton::backend::cpu::onednn
