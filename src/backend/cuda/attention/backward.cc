// SPDX-License-Identifier: Apache-2.0
// attention_backward in 16 bits.
#include <cmath>

#include "backend/cuda/implementations.h"
#include "backend/cuda/own/attention_backward.h"
#include "backend/cuda/own/host.h"
#include "ir/op.h"

namespace pelton::backend::cuda {
namespace {

std::string refuse(const ir::Graph& graph, ir::NodeId id, const device::Target&) {
  if (std::string why = refuse_layouts(graph, id); !why.empty()) return why;
  const ir::Node& n = graph[id];
  const ir::Type &q = input_type(graph, id, 1), &v = input_type(graph, id, 3);
  if (q.dtype != DType::f16 && q.dtype != DType::bf16) return cat("needs f16 or bf16, got ", name(q.dtype));
  for (const ir::Type* t : {&q, &v})
    if (!t->shape[3].is_const() || t->shape[3].value() > kAttentionBackwardMaxHead ||
        t->shape[3].value() % 8 != 0)
      return cat("needs heads of a known size, a multiple of 8 up to ", kAttentionBackwardMaxHead, ", got ",
                 t->shape[3].str());
  if (n.inputs.size() > 6 && n.inputs[6]) {
    const DType mask = input_type(graph, id, 6).dtype;
    if (mask != DType::boolean && !elem_of(mask)) return cat("has a mask of ", name(mask));
  }
  return {};
}

void set(int64_t (&strides)[3], const TensorSpec& spec) {
  const Dims s = row_major_strides(spec.dims);
  for (size_t i = 0; i < 3; ++i) strides[i] = s[i];
}

std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target&) {
  const std::vector<TensorSpec>& in = instance.inputs;
  const ir::Node& n = instance.node();
  const TensorSpec &q = in[1], &k = in[2], &v = in[3];
  AttentionBackward b;
  Attention& f = b.forward;
  auto small = [](int64_t x) { return static_cast<int>(x); };
  f.type = elem(q.dtype);
  f.n = small(q.dims[0]);
  f.heads = small(q.dims[1]);
  f.queries = small(q.dims[2]);
  f.depth = small(q.dims[3]);
  f.groups = small(k.dims[1]);
  f.keys = small(k.dims[2]);
  f.width = small(v.dims[3]);
  if (f.heads > 0 && (f.groups == 0 || f.heads % f.groups != 0))
    fail(ErrorCode::bad_shape, cat("has ", f.heads, " query heads for ", f.groups, " key heads"));
  f.scale = static_cast<float>(n.get_real("scale"));
  if (f.scale == 0) f.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(f.depth)));
  f.softcap = static_cast<float>(n.get_real("softcap"));
  f.causal = n.get_bool("causal");
  set(b.g_strides, in[0]);
  set(f.q_strides, q);
  set(f.k_strides, k);
  set(f.v_strides, v);
  set(f.y_strides, in[4]);
  set(b.dq_strides, q);
  set(b.dk_strides, k);
  set(b.dv_strides, v);
  const bool mask = instance.has(6);
  if (mask) {
    const TensorSpec& m = in[6];
    f.mask_kind = m.dtype == DType::boolean ? Attention::boolean : Attention::added;
    if (m.dtype != DType::boolean) f.mask_type = elem(m.dtype);
    const Dims s = row_major_strides(m.dims);
    const size_t skip = 4 - m.dims.size();
    for (size_t d = 0; d < m.dims.size(); ++d) f.mask_strides[skip + d] = m.dims[d] == 1 ? 0 : s[d];
  }
  KernelNeeds needs;
  needs.scratch_bytes = element_count(Dims(q.dims.begin(), q.dims.end() - 1)) * 4;
  return make_kernel(
      [b, mask](const RunArgs& args) {
        AttentionBackward a = b;
        a.g = args.in[0];
        a.forward.q = args.in[1];
        a.forward.k = args.in[2];
        a.forward.v = args.in[3];
        a.forward.y = const_cast<void*>(args.in[4]);
        a.forward.log_sums = static_cast<float*>(const_cast<void*>(args.in[5]));
        if (mask) a.forward.mask = args.in[6];
        a.dq = args.out[0];
        a.dk = args.out[1];
        a.dv = args.out[2];
        a.row_sums = static_cast<float*>(args.scratch);
        PELTON_CUDA(attention_backward(a, stream_of(args)));
      },
      std::move(needs));
}

}  // namespace

void add_attention_backward(Registry& registry) {
  registry.add({.name = "cuda.attention_backward",
                .ops = {"attention_backward"},
                .refuse = refuse,
                .prepare = prepare,
                .device = device::Kind::cuda});
}

}  // namespace pelton::backend::cuda
