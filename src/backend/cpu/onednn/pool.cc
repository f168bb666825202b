// SPDX-License-Identifier: Apache-2.0
// max_pool and avg_pool on oneDNN in every layout.
#include "backend/conv_window.h"
#include "backend/cpu/implementations.h"
#include "backend/cpu/onednn/engine.h"
#include "base/cat.h"

namespace pelton::backend::cpu {
namespace {

using namespace onednn;

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  if (std::string why = refuse_target(target); !why.empty()) return why;
  const ir::Node& n = graph[node];
  const ir::Type& x = graph.type(n.inputs[0]);
  const bool max = n.is("max_pool");
  if (x.dtype != DType::f32 && x.dtype != DType::bf16 &&
      !(max && (x.dtype == DType::i8 || x.dtype == DType::u8)))
    return cat("needs f32 or bf16", max ? ", i8 or u8" : "", ", got ", name(x.dtype));
  if (x.dtype == DType::bf16 && target.isa < device::CpuIsa::avx512) return "bf16 needs AVX-512";
  if (x.rank() > 5) return cat("takes up to 3 spatial dims, not ", x.rank() - 2);
  if (max && n.outputs.size() > 1 && !graph.unused(n.outputs[1])) return "does not yield indices";
  if (!max && n.get_bool("count_padding") && n.get_bool("ceil"))
    return "does not count padding in windows that run over the end";
  for (std::string_view side : {"low", "high"})
    for (const Dim& d : n.get_dims(side))
      if (!d.is_const() || d.value() < 0) return "needs constant pads that do not crop";
  // A window that lies in the padding has no value in the library.
  const ir::Ints& kernel = n.get_ints("kernel");
  const ir::Ints& dilations = n.get_ints("dilations");
  const Shape &low = n.get_dims("low"), &high = n.get_dims("high");
  constexpr int64_t kMost = 1 << 20;  // the library visits taps in the pads as well, and counts in 32 bits
  for (std::string_view steps : {"strides", "dilations"})
    for (int64_t step : n.get_ints(steps))
      if (step > kMost) return cat("takes ", steps, " of up to ", kMost, ", not ", step);
  for (size_t i = 0; i < kernel.size(); ++i) {
    if (kernel[i] > kMost) return cat("takes windows of up to ", kMost, ", not ", kernel[i]);
    const int64_t extent = (kernel[i] - 1) * (dilations.empty() ? 1 : dilations[i]) + 1;
    for (const Shape* side : {&low, &high})
      if (!side->empty() && (*side)[i].value() >= extent) return "has pads as large as the window";
  }
  return {};
}

bool is_generated(const dnnl::primitive_desc_base& pd) {
  return std::string_view(pd.impl_info_str()).starts_with("jit");
}
Desc channels_last(TensorSpec t) {
  t.layout = {ir::Layout::Kind::channels_last, 0};
  return desc_of(t);
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const TensorSpec &x = instance.inputs[0], &y = instance.outputs[0];
  if (element_count(y.dims) == 0) return make_kernel([](const RunArgs&) {});
  ConvWindow w = pool_window(instance.node(), instance, x.dims.size() - 2);
  for (size_t i = 0; i < w.kernel.size(); ++i) {
    // `ceil` lets the last window run over the end: as much padding as it needs.
    const int64_t extent = (w.kernel[i] - 1) * w.dilations[i] + 1;
    const int64_t reach = (y.dims[i + 2] - 1) * w.strides[i] + extent - x.dims[i + 2] - w.low[i];
    w.high[i] = std::max(w.high[i], reach);
    w.dilations[i] -= 1;
  }
  const dnnl::algorithm algorithm = instance.node().is("max_pool") ? dnnl::algorithm::pooling_max
                                    : instance.node().get_bool("count_padding")
                                        ? dnnl::algorithm::pooling_avg_include_padding
                                        : dnnl::algorithm::pooling_avg_exclude_padding;
  auto sequence = std::make_unique<Sequence>();
  const auto describe = [&](const Desc& from, const Desc& to) {
    return dnnl::pooling_forward::primitive_desc(engine(), dnnl::prop_kind::forward_inference, algorithm,
                                                 from, to, w.strides, w.kernel, w.dilations, w.low, w.high,
                                                 attributes());
  };
  guarded([&] {
    const Desc from = desc_of(x), to = desc_of(y);
    auto pd = describe(from, to);
    // On plain data the library may have only plain loops, ten times slower than re-ordering around its code
    // for channels last.
    if (x.layout.is_plain() && y.layout.is_plain() && x.dims.size() == 4 && !is_generated(pd))
      if (auto better = describe(channels_last(x), channels_last(y)); is_generated(better)) pd = better;
    Place x_at = input(0), y_at = output(0);
    if (pd.src_desc() != from) x_at = sequence->add_reorder(from, x_at, pd.src_desc());
    if (pd.dst_desc() != to) y_at = sequence->reserve(pd.dst_desc());
    sequence->add(dnnl::pooling_forward(pd),
                  {{DNNL_ARG_SRC, pd.src_desc(), x_at}, {DNNL_ARG_DST, pd.dst_desc(), y_at}});
    if (pd.dst_desc() != to) sequence->add_reorder(pd.dst_desc(), y_at, to, output(0));
    sequence->seal();
  });
  return sequence;
}

std::string refuse_layout(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  if (std::string why = refuse_target(target); !why.empty()) return why;
  const ir::Type& x = graph.type(graph[node].inputs[0]);
  if (!has_type(x.dtype)) return cat("oneDNN has no ", name(x.dtype));
  for (const ir::Layout& l : {x.layout, graph.type(graph[node].outputs[0]).layout})
    if (l.kind == ir::Layout::Kind::blocked && (x.rank() > 5 || (l.block != 8 && l.block != 16)))
      return cat("needs blocks of 8 or 16 and up to 3 spatial dims, got ", l.str());
  return {};
}
std::unique_ptr<Kernel> prepare_layout(const Instance& instance, const device::Target&) {
  auto sequence = std::make_unique<Sequence>();
  if (element_count(instance.outputs[0].dims) == 0) return make_kernel([](const RunArgs&) {});
  guarded([&] {
    sequence->add_reorder(desc_of(instance.inputs[0]), input(0), desc_of(instance.outputs[0]), output(0));
    sequence->seal();
  });
  return sequence;
}

}  // namespace

void add_onednn_pool(Registry& registry) {
  registry.add({"onednn.pool", {"max_pool", "avg_pool"}, refuse, prepare});
  registry.add({"onednn.layout", {"layout"}, refuse_layout, prepare_layout});
}

}  // namespace pelton::backend::cpu
