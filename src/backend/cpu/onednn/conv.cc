// SPDX-License-Identifier: Apache-2.0
// conv and conv_transpose on oneDNN: f32, bf16 and 8-bit integers, 1 to 3 spatial dims, with the chain that
// follows as post-ops. Constant weights are re-ordered once.
#include "backend/conv_window.h"
#include "backend/cpu/fallback.h"
#include "backend/cpu/implementations.h"
#include "backend/cpu/onednn/conv_phases.h"
#include "backend/cpu/onednn/post_ops.h"
#include "base/cat.h"
#include "runtime/packed_weights.h"

namespace pelton::backend::cpu {
namespace {

using namespace onednn;

bool byte(DType t) {
  return t == DType::i8 || t == DType::u8;
}
bool all_zero(const GroupOperand& o) {
  if (!o.present()) return true;
  if (!o.constant.defined()) return false;
  for (int64_t i = 0; i < o.constant.count(); ++i)
    if (o.constant.get_int(i) != 0) return false;
  return true;
}
GroupOperand operand_or_absent(const Group& g, size_t i) {
  return i < g.operands.size() ? g.operands[i] : GroupOperand();
}

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  if (std::string why = refuse_target(target); !why.empty()) return why;
  const Group group = parse_group(graph, node);
  if (!group.reason.empty()) return group.reason;
  const ir::Node& n = group.node();
  if (!n.is("conv") && !n.is("conv_transpose")) return "is not around a convolution";
  const ir::Type& x = group.graph->type(n.inputs[0]);
  const DType t = x.dtype, w = group.graph->type(n.inputs[1]).dtype;
  if (x.rank() > 5) return cat("takes up to 3 spatial dims, not ", x.rank() - 2);
  if (t == DType::bf16 && target.isa < device::CpuIsa::avx512) return "bf16 needs AVX-512";
  if (byte(t)) {
    if (target.isa < device::CpuIsa::avx512_vnni) return kNoVnni;
    if (w != DType::i8) return cat("needs i8 weights, got ", name(w));
    if (!all_zero(operand_or_absent(group, 4))) return "the weights have a zero point";
    const GroupOperand zero = operand_or_absent(group, 3);
    if (zero.present() && !zero.constant.defined()) return "the zero point of the data is not constant";
  } else if (t != DType::f32 && t != DType::bf16) {
    return cat("needs f32, bf16 or 8-bit integers, got ", name(t));
  }
  if (!has_type(group.result) || group.result == DType::f16)
    return cat("does not yield ", name(group.result));
  return refuse_steps(group);
}

struct Problem {
  const Group& group;
  const Instance& instance;
  bool transposed = false;
  TensorSpec x, y;
  Dims w;  // as the primitive sees them: [groups,] outputs, inputs, kernel...
  Dims w_strides;
  DType w_type = DType::f32;
  Dims strides, dilations, low, high;
  bool has_bias = false;
  GroupOperand bias;
  DType bias_type = DType::f32;
  size_t first_step = 0;
};

Problem problem_of(const Group& group, const Instance& instance) {
  Problem p{group, instance, group.node().is("conv_transpose"), {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
            {},    {}};
  const ir::Node& n = group.node();
  p.x = spec_of(group.operands[0], DType::f32, instance);
  p.y = instance.outputs[0];
  const TensorSpec w = spec_of(group.operands[1], DType::f32, instance);
  p.w_type = w.dtype;
  const int64_t groups = n.get_int("groups");
  const ConvWindow window = conv_window(n, instance, w.dims);
  p.strides = window.strides;
  for (int64_t d : window.dilations) p.dilations.push_back(d - 1);
  p.low = window.low;
  p.high = window.high;
  if (p.transposed)
    for (size_t i = 0; i < p.high.size(); ++i) p.high[i] -= window.output_padding[i];
  // [O, I, K...] or, transposed, [I, O, K...]; groups split the first dim.
  const Dims kernel(w.dims.begin() + 2, w.dims.end());
  const int64_t taps = element_count(kernel);
  const int64_t first = w.dims[0] / groups, second = w.dims[1];
  const int64_t outputs = p.transposed ? second : first, inputs = p.transposed ? first : second;
  const int64_t output_step = p.transposed ? taps : second * taps,
                input_step = p.transposed ? second * taps : taps;
  if (groups > 1) {
    p.w.push_back(groups);
    p.w_strides.push_back(first * second * taps);
  }
  p.w.insert(p.w.end(), {outputs, inputs});
  p.w_strides.insert(p.w_strides.end(), {output_step, input_step});
  const Dims kernel_strides = row_major_strides(kernel);
  p.w.insert(p.w.end(), kernel.begin(), kernel.end());
  p.w_strides.insert(p.w_strides.end(), kernel_strides.begin(), kernel_strides.end());
  if (const GroupOperand b = operand_or_absent(group, 2); b.present()) {
    p.has_bias = true;
    p.bias = b;
  } else if (!group.steps.empty() && is_bias(group.steps[0], p.y.dims.size(), 1)) {
    p.has_bias = true;
    p.bias = group.steps[0].operand;
    p.first_step = 1;
  }
  if (p.has_bias) p.bias_type = spec_of(p.bias, DType::f32, instance).dtype;
  return p;
}

// The primitive for these descriptors; empty if the library has none.
template <class Forward>
typename Forward::primitive_desc describe(const Problem& p, const Desc& x, const Desc& y, const Desc& w,
                                          const dnnl::primitive_attr& attr) {
  const Desc bias = p.has_bias ? Desc({p.y.dims[1]}, type_of(p.bias_type), Tag::x) : Desc();
  const auto algorithm =
      p.transposed ? dnnl::algorithm::deconvolution_direct : dnnl::algorithm::convolution_direct;
  return
      typename Forward::primitive_desc(engine(), dnnl::prop_kind::forward_inference, algorithm, x, w, bias, y,
                                       p.strides, p.dilations, p.low, p.high, attr, /*allow_empty=*/true);
}

// From this size of an image on, one image with its tail stays in the cache where a whole batch would not.
constexpr int64_t kLargeImageBytes = 512 << 10;

// With a `tail`, the last step of the chain is not a post-op but a pass of its own over what was written;
// with `split_batch` large images run one by one.
template <class Forward>
std::unique_ptr<Kernel> build(Problem p, const Tail& tail, bool split_batch) {
  const int64_t batch = p.y.dims[0];
  const bool by_image = split_batch && tail.function && batch > 1 && p.y.bytes() / batch >= kLargeImageBytes;
  const int64_t images = by_image ? batch : 1;
  if (by_image) p.x.dims[0] = p.y.dims[0] = 1;
  const Desc x = desc_of(p.x), y = desc_of(p.y);
  const Desc w = any_desc(p.w, p.w_type);
  const size_t steps = p.group.steps.size() - (tail.function ? 1 : 0);
  if (tail.function && steps < p.first_step) return nullptr;
  PostOps post = post_ops_of(p.group, p.first_step, steps, p.instance, p.y.dims.size(), [&](TensorSpec spec) {
    if (by_image) spec.dims[0] = 1;
    return desc_of(spec);
  });
  dnnl::primitive_attr attr = attributes();
  attr.set_post_ops(post.ops);
  const GroupOperand zero = operand_or_absent(p.group, 3);
  const bool shifted = !all_zero(zero);
  if (shifted) attr.set_zero_points_mask(DNNL_ARG_SRC, 0);

  auto pd = describe<Forward>(p, x, y, w, attr);
  const bool plain = p.x.layout.is_plain() && p.y.layout.is_plain();
  // On plain data the fast kernels of the library do not work (except for few channels): re-order around
  // them.
  const bool slow =
      pd && (is_reference(pd) || std::string_view(pd.impl_info_str()).find("gemm") != std::string_view::npos);
  if (!pd || (slow && plain)) {
    auto better = describe<Forward>(p, any_desc(p.x.dims, p.x.dtype), any_desc(p.y.dims, p.y.dtype), w, attr);
    if (better && (!pd || !is_reference(better))) pd = better;
  }
  if (!pd || (is_reference(pd) && !p.group.steps.empty())) return nullptr;
  // Re-ordered tensors around the primitive are whole ones, and weights are re-ordered once.
  const Desc plain_w(p.w, type_of(p.w_type), p.w_strides);
  const bool reorders_w = !p.group.operands[1].constant.defined() && plain_w != pd.weights_desc();
  if (by_image && (pd.src_desc() != x || pd.dst_desc() != y || reorders_w)) return nullptr;

  auto sequence = std::make_unique<Sequence>();
  const GroupOperand& weights = p.group.operands[1];
  Place w_at;
  if (weights.constant.defined())
    w_at = plain_w == pd.weights_desc() && weights.input >= 0
               ? input(weights.input)
               : sequence->keep(reordered(weights.constant, plain_w, pd.weights_desc()));
  else
    w_at = plain_w == pd.weights_desc()
               ? input(weights.input)
               : sequence->add_reorder(plain_w, input(weights.input), pd.weights_desc());
  Place x_at = place_of(p.group.operands[0], *sequence), y_at = output(0);
  if (pd.src_desc() != x) x_at = sequence->add_reorder(x, x_at, pd.src_desc());
  const bool reorders_y = pd.dst_desc() != y;
  if (reorders_y) y_at = sequence->reserve(pd.dst_desc());
  const auto image = [&](const Desc& d) { return by_image ? static_cast<int64_t>(d.get_size()) : 0; };
  std::vector<Argument> arguments = {{DNNL_ARG_SRC, pd.src_desc(), x_at, image(pd.src_desc())},
                                     {DNNL_ARG_WEIGHTS, pd.weights_desc(), w_at},
                                     {DNNL_ARG_DST, pd.dst_desc(), y_at, image(pd.dst_desc())}};
  if (p.has_bias) arguments.push_back({DNNL_ARG_BIAS, pd.bias_desc(), place_of(p.bias, *sequence)});
  if (shifted)
    arguments.push_back(
        {DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, Desc({1}, Type::s32, Tag::x),
         sequence->keep(Tensor::scalar<int32_t>(static_cast<int32_t>(zero.constant.get_int(0))))});
  const size_t fixed = arguments.size();
  bind_operands(post, *sequence, arguments);
  // Operands of the whole batch move with the images.
  for (size_t i = fixed; by_image && i < arguments.size(); ++i)
    if (const Dims d = dims_of(post.operands[i - fixed].operand, p.instance);
        d.size() == p.y.dims.size() && d[0] == batch)
      arguments[i].image_bytes = image(arguments[i].desc);
  sequence->add(Forward(pd), std::move(arguments));
  if (reorders_y) sequence->add_reorder(pd.dst_desc(), y_at, y, output(0));
  if (tail.function)
    sequence->add_tail(tail.function, output(0), static_cast<int64_t>(y.get_size()) / 4, image(y));
  sequence->repeat(images);
  sequence->seal();
  return sequence;
}

std::unique_ptr<Kernel> prepare_with(const Instance& instance, const device::Target& target, bool split) {
  const Group group = parse_group(instance.graph, instance.id, &instance);
  PELTON_CHECK(group.reason.empty(), group.reason);
  const Problem p = problem_of(group, instance);
  std::unique_ptr<Kernel> kernel;
  const bool empty = element_count(p.y.dims) == 0 || element_count(p.x.dims) == 0 || element_count(p.w) == 0;
  const Tail tail = split ? tail_of(group, target.isa) : Tail();
  if (!empty)
    guarded([&] {
      kernel = prepare_phases(group, instance);
      for (bool split_batch : {true, false}) try {
          if (!kernel)
            kernel = p.transposed ? build<dnnl::deconvolution_forward>(p, tail, split_batch)
                                  : build<dnnl::convolution_forward>(p, tail, split_batch);
        } catch (const dnnl::error& e) {
          // Sizes or pads outside what the library takes.
          if (e.status != dnnl_unimplemented && e.status != dnnl_invalid_arguments) throw;
        }
    });
  return kernel ? std::move(kernel) : prepare_fallback(instance, target);
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  return prepare_with(instance, target, false);
}

std::string refuse_split(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  if (std::string why = refuse(graph, node, target); !why.empty()) return why;
  const Group group = parse_group(graph, node);
  const Tail tail = tail_of(group, target.isa);
  if (!tail.function) return "the chain does not end in an f32 function that is slow as a post-op";
  const ir::Layout& layout = graph.type(graph[node].outputs[0]).layout;
  if (!tail.zero && layout.kind == ir::Layout::Kind::blocked)
    return "maps the padding of a blocked result to other than 0";
  return {};
}
std::unique_ptr<Kernel> prepare_split(const Instance& instance, const device::Target& target) {
  return prepare_with(instance, target, true);
}

}  // namespace

void add_onednn_conv(Registry& registry) {
  Implementation split{"onednn.conv_tile", {"conv", "conv_transpose", "fused"}, refuse_split, prepare_split};
  split.timed = true;
  registry.add(std::move(split));
  registry.add({"onednn.conv", {"conv", "conv_transpose", "fused"}, refuse, prepare});
  for (const char* name : {"onednn.conv", "onednn.conv_tile"})
    runtime::PackedWeights::instance().declare(name);
}

}  // namespace pelton::backend::cpu
