// SPDX-License-Identifier: Apache-2.0
// matmul on oneDNN: batches that broadcast, transposed operands, f32, bf16 and 8-bit integers, with the chain
// that follows as post-ops. A constant right operand is re-ordered once.
#include "backend/cpu/fallback.h"
#include "backend/cpu/implementations.h"
#include "backend/cpu/onednn/post_ops.h"
#include "base/cat.h"
#include "runtime/packed_weights.h"

namespace pelton::backend::cpu {
namespace {

using namespace onednn;

bool byte(DType t) {
  return t == DType::i8 || t == DType::u8;
}
bool absent_or_zero(const Group& g, size_t i) {
  if (i >= g.operands.size() || !g.operands[i].present()) return true;
  const Tensor& t = g.operands[i].constant;
  if (!t.defined()) return false;
  for (int64_t k = 0; k < t.count(); ++k)
    if (t.get_int(k) != 0) return false;
  return true;
}

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  if (std::string why = refuse_target(target); !why.empty()) return why;
  const Group group = parse_group(graph, node);
  if (!group.reason.empty()) return group.reason;
  const ir::Node& n = group.node();
  if (!n.is("matmul")) return "is not around a matrix product";
  for (size_t i = 0; i < 2; ++i)
    if (!group.graph->type(n.inputs[i]).layout.is_plain()) return "needs plain operands";
  const DType a = group.graph->type(n.inputs[0]).dtype, b = group.graph->type(n.inputs[1]).dtype;
  if (a == DType::bf16 && target.isa < device::CpuIsa::avx512) return "bf16 needs AVX-512";
  if (byte(a)) {
    if (target.isa < device::CpuIsa::avx512_vnni) return kNoVnni;
    if (b != DType::i8) return cat("needs an i8 right operand, got ", name(b));
    if (!absent_or_zero(group, 3)) return "the right operand has a zero point";
    if (!absent_or_zero(group, 2)) {
      const Tensor& zero = group.operands[2].constant;
      if (!zero.defined() || zero.count() != 1) return "the left zero point is not one constant";
    }
  } else if (a == DType::f32 && target.isa < device::CpuIsa::avx512) {
    return "before AVX-512 the library cuts f32 products by the number of threads, on which their bits would "
           "depend";
  } else if (a != DType::f32 && a != DType::bf16) {
    return cat("needs f32, bf16 or 8-bit integers, got ", name(a));
  }
  if (!has_type(group.result) || group.result == DType::f16)
    return cat("does not yield ", name(group.result));
  return refuse_steps(group);
}

// One operand as [batch..., rows, columns]: dims and strides after its transposition.
struct Matrix {
  Dims dims, strides;
};
Matrix matrix_of(const Dims& given, bool left, bool transposed) {
  Matrix m{given, row_major_strides(given)};
  if (given.size() == 1) {
    m.dims.insert(left ? m.dims.begin() : m.dims.end(), 1);
    m.strides.insert(left ? m.strides.begin() : m.strides.end(), left ? given[0] : 1);
    return m;
  }
  if (transposed) {
    std::swap(m.dims[m.dims.size() - 1], m.dims[m.dims.size() - 2]);
    std::swap(m.strides[m.strides.size() - 1], m.strides[m.strides.size() - 2]);
  }
  return m;
}
void pad_batch(Matrix& m, size_t rank) {
  while (m.dims.size() < rank) {
    m.strides.insert(m.strides.begin(), m.dims[0] * m.strides[0]);
    m.dims.insert(m.dims.begin(), 1);
  }
}

struct Problem {
  Matrix a, b;
  Dims y;  // [batch..., M, N]
};

Problem problem_of(const Group& group, const Instance& instance) {
  const ir::Node& n = group.node();
  Problem p;
  p.a = matrix_of(dims_of(group.operands[0], instance), true, n.get_bool("transpose_a"));
  p.b = matrix_of(dims_of(group.operands[1], instance), false, n.get_bool("transpose_b"));
  const size_t rank = std::max(p.a.dims.size(), p.b.dims.size());
  pad_batch(p.a, rank);
  pad_batch(p.b, rank);
  for (size_t d = 0; d + 2 < rank; ++d) p.y.push_back(p.a.dims[d] == 1 ? p.b.dims[d] : p.a.dims[d]);
  p.y.push_back(p.a.dims[rank - 2]);
  p.y.push_back(p.b.dims[rank - 1]);
  return p;
}

// Operand of a step as the primitive sees it; each has the rank of the node's result.
struct Shaped {
  size_t node_rank;
  const Dims* node_dims;
  const Dims* y;  // what the primitive yields
  bool ok = true;
  Desc operator()(const TensorSpec& spec) {
    if (spec.dims == *node_dims) return plain_desc(*y, spec.dtype);
    // A row vector, or one value.
    const int64_t last = spec.dims.empty() ? 1 : spec.dims.back();
    if (element_count(spec.dims) == last && (last == 1 || last == y->back())) {
      Dims d(y->size(), 1);
      d.back() = last;
      return plain_desc(d, spec.dtype);
    }
    if (y->size() == node_rank && spec.dims.size() == node_rank) return plain_desc(spec.dims, spec.dtype);
    ok = false;
    return Desc();
  }
};

// With a `tail`, the last step of the chain is not a post-op but a pass of its own over what was written.
std::unique_ptr<Kernel> build(const Group& group, const Instance& instance, Problem p, bool fold,
                              const Tail& tail) {
  const DType a_type = spec_of(group.operands[0], DType::f32, instance).dtype;
  const DType b_type = spec_of(group.operands[1], DType::f32, instance).dtype;
  const TensorSpec& result = instance.outputs[0];
  const size_t rank = p.y.size();
  // One right operand for all batches: the batches are more rows.
  const bool one_right = element_count(Dims(p.b.dims.begin(), p.b.dims.end() - 2)) == 1;
  if (fold && one_right && rank > 2 && p.a.strides[rank - 1] == 1 &&
      p.a.strides[rank - 2] == p.a.dims[rank - 1]) {
    const int64_t rows = element_count(Dims(p.y.begin(), p.y.end() - 1));
    p.y = {rows, p.y.back()};
    p.a = {{rows, p.a.dims.back()}, {p.a.dims.back(), 1}};
    p.b.dims.erase(p.b.dims.begin(), p.b.dims.end() - 2);
    p.b.strides.erase(p.b.strides.begin(), p.b.strides.end() - 2);
  } else if (rank > 3 &&
             Dims(p.a.dims.begin(), p.a.dims.end() - 2) == Dims(p.b.dims.begin(), p.b.dims.end() - 2)) {
    // Equal batches are one batch dim.
    auto merge = [](Matrix& m) {
      const size_t r = m.dims.size();
      const int64_t batch = element_count(Dims(m.dims.begin(), m.dims.end() - 2));
      m.dims = {batch, m.dims[r - 2], m.dims[r - 1]};
      m.strides = {m.strides[r - 3], m.strides[r - 2], m.strides[r - 1]};
    };
    merge(p.a);
    merge(p.b);
    p.y = {p.a.dims[0], p.a.dims[1], p.b.dims[2]};
  }
  Shaped shaped{result.dims.size(), &result.dims, &p.y};
  size_t first = 0;
  GroupOperand bias;
  const size_t result_rank = result.dims.size();
  const bool has_columns = dims_of(group.operands[1], instance).size() > 1;
  if (has_columns && !group.steps.empty() && is_bias(group.steps[0], result_rank, result_rank - 1)) {
    bias = group.steps[0].operand;
    first = 1;
  }
  const size_t last = group.steps.size() - (tail.function ? 1 : 0);
  PostOps post = post_ops_of(group, first, last, instance, result_rank, shaped);
  if (!shaped.ok) return nullptr;
  dnnl::primitive_attr attr = attributes();
  attr.set_post_ops(post.ops);
  const bool shifted = !absent_or_zero(group, 2);
  if (shifted) attr.set_zero_points_mask(DNNL_ARG_SRC, 0);

  const Desc a(p.a.dims, type_of(a_type), p.a.strides), b(p.b.dims, type_of(b_type), p.b.strides);
  const Desc y = plain_desc(p.y, result.dtype);
  const GroupOperand& right = group.operands[1];
  const bool packs = right.constant.defined();
  Desc bias_desc;
  if (bias.present()) {
    Dims d(p.y.size(), 1);
    d.back() = p.y.back();
    bias_desc = plain_desc(d, spec_of(bias, DType::f32, instance).dtype);
  }
  const dnnl::matmul::primitive_desc pd(engine(), a, packs ? any_desc(p.b.dims, b_type) : b, bias_desc, y,
                                        attr,
                                        /*allow_empty=*/true);
  // The library's older code cuts long sums of small results by the number of threads, so their bits would
  // depend on it.
  const bool cuts_sums = pd && std::string_view(pd.impl_info_str()).find("gemm:") == 0 &&
                         p.a.dims.back() >= 256 && p.y[p.y.size() - 2] * p.y.back() < 128 * 128;
  if (!pd || cuts_sums || (is_reference(pd) && (!group.steps.empty() || shifted))) return nullptr;
  auto sequence = std::make_unique<Sequence>();
  Place b_at = place_of(right, *sequence);
  if (pd.weights_desc() != b) b_at = sequence->keep(reordered(right.constant, b, pd.weights_desc()));
  std::vector<Argument> arguments = {{DNNL_ARG_SRC, a, place_of(group.operands[0], *sequence)},
                                     {DNNL_ARG_WEIGHTS, pd.weights_desc(), b_at},
                                     {DNNL_ARG_DST, y, output(0)}};
  if (bias.present()) arguments.push_back({DNNL_ARG_BIAS, bias_desc, place_of(bias, *sequence)});
  if (shifted)
    arguments.push_back({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, Desc({1}, Type::s32, Tag::x),
                         sequence->keep(Tensor::scalar<int32_t>(
                             static_cast<int32_t>(group.operands[2].constant.get_int(0))))});
  bind_operands(post, *sequence, arguments);
  sequence->add(dnnl::matmul(pd), std::move(arguments));
  if (tail.function) sequence->add_tail(tail.function, output(0), element_count(p.y), 0);
  sequence->seal();
  return sequence;
}

std::unique_ptr<Kernel> prepare_with(const Instance& instance, const device::Target& target, bool split) {
  const Group group = parse_group(instance.graph, instance.id, &instance);
  PELTON_CHECK(group.reason.empty(), group.reason);
  const Problem p = problem_of(group, instance);
  std::unique_ptr<Kernel> kernel;
  const Tail tail = split ? tail_of(group, target.isa) : Tail();
  const bool empty = element_count(p.y) == 0 || p.a.dims.back() == 0;
  if (!empty && p.y.size() <= 12)
    guarded([&] {
      for (bool fold : {true, false}) try {
          if (!kernel) kernel = build(group, instance, p, fold, tail);
        } catch (const dnnl::error& e) {
          // Combinations of sizes and types that the library does not take.
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
  if (!tail_of(parse_group(graph, node), target.isa).function)
    return "the chain does not end in an f32 function that is slow as a post-op";
  return {};
}
std::unique_ptr<Kernel> prepare_split(const Instance& instance, const device::Target& target) {
  return prepare_with(instance, target, true);
}

}  // namespace

void add_onednn_matmul(Registry& registry) {
  Implementation split{"onednn.matmul_tile", {"matmul", "fused"}, refuse_split, prepare_split};
  split.timed = true;
  registry.add(std::move(split));
  registry.add({"onednn.matmul", {"matmul", "fused"}, refuse, prepare});
  for (const char* name : {"onednn.matmul", "onednn.matmul_tile"})
    runtime::PackedWeights::instance().declare(name);
}

}  // namespace pelton::backend::cpu
