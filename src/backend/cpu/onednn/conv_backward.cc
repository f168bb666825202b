// SPDX-License-Identifier: Apache-2.0
// conv_backward_data and conv_backward_weights on oneDNN: f32 and bf16, 1 to 3 spatial axes, plain data and
// channels last. On plain data the library re-orders around its fast kernels.
#include <cstring>

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
  const ir::Type &g = graph.type(n.inputs[0]), &other = graph.type(n.inputs[1]);
  if (g.dtype != DType::f32 && g.dtype != DType::bf16) return cat("needs f32 or bf16, got ", name(g.dtype));
  if (g.dtype == DType::bf16 && target.isa < device::CpuIsa::avx512) return "bf16 needs AVX-512";
  if (g.rank() > 5) return cat("takes up to 3 spatial dims, not ", g.rank() - 2);
  const ir::Type& weights = n.is("conv_backward_weights") ? graph.type(n.outputs[0]) : other;
  if (!weights.layout.is_plain()) return "needs plain weights";
  for (std::string_view side : {"low", "high"})
    for (const Dim& d : n.get_dims(side))
      if (!d.is_const() || d.value() < 0) return "needs constant pads that do not crop";
  return {};
}

struct Problem {
  bool weights = false;  // else the gradient of the data
  TensorSpec g, x;
  Dims w;  // [groups,] O/groups, C/groups, kernel...
  DType type = DType::f32;
  ConvWindow window;
};

Problem problem_of(const Instance& instance) {
  const ir::Node& n = instance.node();
  Problem p;
  p.weights = n.is("conv_backward_weights");
  p.g = instance.inputs[0];
  p.x = p.weights ? instance.inputs[1] : instance.outputs[0];
  p.w = p.weights ? instance.outputs[0].dims : instance.inputs[1].dims;
  p.type = p.g.dtype;
  p.window = conv_window(n, instance, p.w);
  for (int64_t& d : p.window.dilations) d -= 1;
  if (int64_t groups = n.get_int("groups"); groups > 1) {
    p.w[0] /= groups;
    p.w.insert(p.w.begin(), groups);
  }
  return p;
}

constexpr auto kDirect = dnnl::algorithm::convolution_direct;

dnnl::convolution_forward::primitive_desc forward(const Problem& p, const Desc& x, const Desc& w,
                                                  const Desc& g) {
  return {engine(),
          dnnl::prop_kind::forward_training,
          kDirect,
          x,
          w,
          g,
          p.window.strides,
          p.window.dilations,
          p.window.low,
          p.window.high,
          attributes(),
          true};
}
template <class Backward>
typename Backward::primitive_desc describe(const Problem& p, const Desc& x, const Desc& w, const Desc& g) {
  auto hint = forward(p, x, w, g);
  if (!hint) return {};
  return typename Backward::primitive_desc(engine(), kDirect, x, w, g, p.window.strides, p.window.dilations,
                                           p.window.low, p.window.high, hint, attributes(), true);
}

bool slow(const dnnl::primitive_desc_base& pd) {
  return is_reference(pd) || std::string_view(pd.impl_info_str()).find("gemm") != std::string_view::npos;
}

// The descriptors of x, w and g that the primitive chose.
struct Descs {
  Desc x, w, g;
};
Descs chosen(const dnnl::convolution_backward_data::primitive_desc& pd) {
  return {pd.diff_src_desc(), pd.weights_desc(), pd.diff_dst_desc()};
}
Descs chosen(const dnnl::convolution_backward_weights::primitive_desc& pd) {
  return {pd.src_desc(), pd.diff_weights_desc(), pd.diff_dst_desc()};
}

template <class Backward>
std::unique_ptr<Kernel> build(const Problem& p) {
  const Desc x = desc_of(p.x), g = desc_of(p.g), w = any_desc(p.w, p.type), plain_w = plain_desc(p.w, p.type);
  auto pd = describe<Backward>(p, x, w, g);
  const bool plain = p.x.layout.is_plain() && p.g.layout.is_plain();
  if (!pd || (slow(pd) && plain)) {
    auto better = describe<Backward>(p, any_desc(p.x.dims, p.type), w, any_desc(p.g.dims, p.type));
    if (better && (!pd || !is_reference(better))) pd = better;
  }
  PELTON_CHECK(pd, "oneDNN has no backward convolution for ", p.x.dims, " and ", p.w);

  const Descs d = chosen(pd);
  auto sequence = std::make_unique<Sequence>();
  auto read = [&](const Desc& have, int64_t i, const Desc& want) {
    return have == want ? input(i) : sequence->add_reorder(have, input(i), want);
  };
  const Place g_at = read(g, 0, d.g);
  const Desc &made = p.weights ? d.w : d.x, &wanted = p.weights ? plain_w : x;
  const Place other = p.weights ? read(x, 1, d.x) : read(plain_w, 1, d.w);
  const Place result = made == wanted ? output(0) : sequence->reserve(made);
  std::vector<Argument> arguments = {{DNNL_ARG_DIFF_DST, d.g, g_at}};
  if (p.weights)
    arguments.insert(arguments.end(), {{DNNL_ARG_SRC, d.x, other}, {DNNL_ARG_DIFF_WEIGHTS, d.w, result}});
  else
    arguments.insert(arguments.end(), {{DNNL_ARG_WEIGHTS, d.w, other}, {DNNL_ARG_DIFF_SRC, d.x, result}});
  sequence->add(Backward(pd), std::move(arguments));
  if (made != wanted) sequence->add_reorder(made, result, wanted, output(0));
  sequence->seal();
  return sequence;
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const Problem p = problem_of(instance);
  if (element_count(p.g.dims) == 0 || element_count(p.x.dims) == 0 || element_count(p.w) == 0) {
    const auto bytes = static_cast<size_t>(instance.outputs[0].bytes());
    return make_kernel([bytes](const RunArgs& args) { std::memset(args.out[0], 0, bytes); });
  }
  std::unique_ptr<Kernel> kernel;
  guarded([&] {
    kernel =
        p.weights ? build<dnnl::convolution_backward_weights>(p) : build<dnnl::convolution_backward_data>(p);
  });
  return kernel;
}

}  // namespace

void add_onednn_conv_backward(Registry& registry) {
  registry.add({"onednn.conv_backward", {"conv_backward_data", "conv_backward_weights"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
