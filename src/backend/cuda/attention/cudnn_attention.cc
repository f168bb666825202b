// SPDX-License-Identifier: Apache-2.0
// The graphs are written the way cuDNN knows fused attention: its engines take these operations, in this
// order, and no others.
#include "backend/cuda/attention/cudnn_attention.h"

#include <limits>

#include "backend/cuda/aligned.h"
#include "backend/cuda/check.h"
#include "backend/cuda/conv/cudnn_graph.h"
#include "backend/cuda/libraries.h"
#include "backend/cuda/own/move_taps.h"
#include "base/cat.h"
#include "base/log.h"

namespace pelton::backend::cuda {
namespace {

using TensorRef = CudnnGraph::TensorRef;
using Sizes = std::vector<int64_t>;

constexpr size_t kPlans = 4;
constexpr float kUnseen = -std::numeric_limits<float>::infinity(), kOne = 1;

int64_t row_bytes(const Attention& p) {
  return aligned(int64_t{4} * p.n * p.heads * p.queries);
}

bool takes(const Attention& p) {
  const bool rows_of_16_bytes = p.depth % 8 == 0 && p.width % 8 == 0 && p.depth <= 128 && p.width <= 128;
  if (p.type == Elem::f32 || !rows_of_16_bytes || p.softcap != 0) return false;
  if (p.mask_kind == Attention::boolean || (p.mask_kind == Attention::added && p.mask_strides[3] != 1))
    return false;
  if (p.n < 1 || p.heads < 1 || p.queries < 1 || p.keys < 1 || p.groups < 1) return false;
  if (p.causal && p.queries != p.keys) return false;
  if (std::string why = missing_cudnn(); !why.empty()) {
    log_debug(cat("no cuDNN: ", why));
    return false;
  }
  return true;
}

// Tensors of one problem: [n, heads, rows, columns].
class Builder {
 public:
  Builder(const Attention& p, CudnnMachine machine)
      : graph(std::move(machine)), p_(p), type_(p.type == Elem::f16 ? DType::f16 : DType::bf16) {
    scores_ = {p.n, p.heads, p.queries, p.keys};
    score_strides_ = dense(scores_);
  }
  CudnnGraph graph;

  static Sizes dense(const Sizes& d) { return {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1}; }
  TensorRef rows(int64_t heads, int64_t rows, int64_t columns, const int64_t (&strides)[3]) {
    return graph.tensor(type_, {p_.n, heads, rows, columns}, {strides[0], strides[1], strides[2], 1});
  }
  TensorRef columns(int64_t heads, int64_t rows, int64_t columns, const int64_t (&strides)[3]) {
    return graph.tensor(type_, {p_.n, heads, columns, rows}, {strides[0], strides[1], 1, strides[2]});
  }
  TensorRef row_numbers(bool real) {  // f32 [n, heads, queries, 1]
    const Sizes d = {p_.n, p_.heads, p_.queries, 1};
    return graph.tensor(DType::f32, d, dense(d), real);
  }
  TensorRef scores(DType type = DType::f32) { return graph.tensor(type, scores_, score_strides_, false); }
  TensorRef low_scores() { return scores(type_); }
  TensorRef point(cudnnPointwiseMode_t mode, TensorRef x, TensorRef b = -1) {
    const TensorRef y = scores();
    graph.pointwise(mode, x, b, y);
    return y;
  }
  TensorRef product(TensorRef a, TensorRef b) {
    const TensorRef y = scores();
    graph.matmul(a, b, y);
    return y;
  }
  // What is added to the scores, of one element where it is spread; -1: nothing. `rows`: one for each query.
  TensorRef mask(bool rows = false) {
    if (p_.mask_kind == Attention::no_mask) return -1;
    Sizes dims = scores_, strides = score_strides_;
    for (int64_t left = 1, d = 3; d >= 0; --d) {
      const auto i = static_cast<size_t>(d);
      const bool spread = rows && p_.mask_strides[2] == 0;  // dense, then
      if (p_.mask_strides[i] == 0 && !(spread && d == 2)) dims[i] = 1;
      strides[i] = dims[i] == 1 || spread ? left : p_.mask_strides[i];
      left = dims[i] * strides[i];
    }
    const DType type = p_.mask_type == Elem::f32   ? DType::f32
                       : p_.mask_type == Elem::f16 ? DType::f16
                                                   : DType::bf16;
    return graph.tensor(type, dims, strides);
  }
  // Products of queries and keys as the softmax takes them, later keys still among them.
  TensorRef scored(TensorRef q, TensorRef kt, TensorRef scale, TensorRef mask) {
    const TensorRef s = point(CUDNN_POINTWISE_MUL, product(q, kt), scale);
    return mask < 0 ? s : point(CUDNN_POINTWISE_ADD, s, mask);
  }
  TensorRef hide_later_keys(TensorRef s, TensorRef unseen) {
    if (!p_.causal) return s;
    const TensorRef row = scores(DType::i32), column = scores(DType::i32), seen = scores(DType::boolean),
                    y = scores();
    graph.index(s, 2, row);
    graph.index(s, 3, column);
    graph.at_least(row, column, seen);
    graph.select(s, unseen, seen, y);
    return y;
  }
  TensorRef transposed_scores(TensorRef s) {
    const TensorRef y = graph.tensor(type_, {p_.n, p_.heads, p_.keys, p_.queries},
                                     {score_strides_[0], score_strides_[1], 1, score_strides_[2]}, false);
    graph.reshape(s, y);
    return y;
  }
  DType type() const { return type_; }

 private:
  const Attention& p_;
  DType type_;
  Sizes scores_, score_strides_;
};

void* data(const void* p) {
  return const_cast<void*>(p);
}
constexpr std::string_view kPrefix = "cudnn ";
// The plan's own name, or nothing if `only` names no plan.
bool plan_wanted(const std::string& only, std::string& plan) {
  if (only.empty()) return true;
  if (!only.starts_with(kPrefix)) return false;
  plan = only.substr(kPrefix.size());
  return true;
}

}  // namespace

CudnnAttention::CudnnAttention(std::shared_ptr<const CudnnPlan> plan, bool sums)
    : plan_(std::move(plan)), sums_(sums) {}
std::string CudnnAttention::name() const {
  return cat(kPrefix, plan_->name());
}
int64_t CudnnAttention::scratch_bytes() const {
  return plan_->workspace_bytes();
}
void CudnnAttention::run(const Attention& p, void* scratch, cudaStream_t stream) const {
  float scale = p.scale, unseen = kUnseen;
  std::vector<void*> pointers = {data(p.q), data(p.k), data(p.v), p.y, &scale};
  if (p.causal) pointers.push_back(&unseen);
  if (sums_) pointers.push_back(p.log_sums);
  if (p.mask_kind != Attention::no_mask) pointers.push_back(data(p.mask));
  plan_->run(pointers, scratch, stream);
}

void CudnnAttention::keep() const {
  plan_->keep();
}

namespace {

CudnnGraph graph_of(const Attention& p, bool sums, CudnnMachine machine) {
  Builder b(p, std::move(machine));
  CudnnGraph& g = b.graph;
  const TensorRef q = b.rows(p.heads, p.queries, p.depth, p.q_strides),
                  kt = b.columns(p.groups, p.keys, p.depth, p.k_strides),
                  v = b.rows(p.groups, p.keys, p.width, p.v_strides),
                  y = b.rows(p.heads, p.queries, p.width, p.y_strides), scale = g.host_number();
  const TensorRef unseen = p.causal ? g.host_number() : -1;
  // Part of the graph in any case: without them no engine knows it.
  const TensorRef log_sums = b.row_numbers(sums), mask = b.mask();
  const TensorRef s = b.hide_later_keys(b.scored(q, kt, scale, mask), unseen);
  const TensorRef most = b.row_numbers(false), sum = b.row_numbers(false);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, s, most);
  const TensorRef e = b.point(CUDNN_POINTWISE_EXP, b.point(CUDNN_POINTWISE_SUB, s, most));
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, e, sum);
  const TensorRef log = b.row_numbers(false);
  g.pointwise(CUDNN_POINTWISE_LOG, sum, -1, log);
  g.pointwise(CUDNN_POINTWISE_ADD, most, log, log_sums);
  const TensorRef shares = b.low_scores();
  g.pointwise(CUDNN_POINTWISE_DIV, e, sum, shares);
  g.matmul(shares, v, y);
  return std::move(g);
}

}  // namespace

CudnnAttentions cudnn_attentions(const Attention& p, bool sums, const std::string& only) {
  CudnnAttentions out;
  std::string plan;
  if (!takes(p) || !plan_wanted(only, plan)) return out;
  for (auto& made : graph_of(p, sums, cudnn_machine()).plans({.only = plan, .count = kPlans}))
    out.emplace_back(std::move(made), sums);
  return out;
}

size_t keep_cudnn_attentions(const Attention& p, bool sums, const CudnnMachine& machine) {
  return takes(p) ? graph_of(p, sums, machine).keep_plans({.only = "", .count = kPlans}) : 0;
}

// Where the mask is one row for all queries: cuDNN's gradient takes it wrongly as it stands (9.19), so it is
// written out.
int64_t spread_mask_bytes(const Attention& p) {
  if (p.mask_kind == Attention::no_mask || p.mask_strides[2] != 0) return 0;
  const int64_t planes = (p.mask_strides[0] ? p.n : 1) * int64_t{p.mask_strides[1] ? p.heads : 1};
  return aligned(planes * p.queries * p.keys * elem_bytes(p.mask_type));
}

CudnnAttentionBackward::CudnnAttentionBackward(std::shared_ptr<const CudnnPlan> plan,
                                               const AttentionBackward& p)
    : plan_(std::move(plan)),
      row_bytes_(row_bytes(p.forward)),
      dq_bytes_(row_bytes_ * p.forward.depth),
      mask_bytes_(spread_mask_bytes(p.forward)) {}
std::string CudnnAttentionBackward::name() const {
  return cat(kPrefix, plan_->name());
}
void CudnnAttentionBackward::keep() const {
  plan_->keep();
}
int64_t CudnnAttentionBackward::scratch_bytes() const {
  return row_bytes_ + dq_bytes_ + mask_bytes_ + aligned(plan_->workspace_bytes());
}
void CudnnAttentionBackward::run(const AttentionBackward& p, void* scratch, cudaStream_t stream) const {
  float scale = p.forward.scale, unseen = kUnseen, one = kOne;
  auto* const rows = static_cast<std::byte*>(scratch);
  std::vector<void*> pointers = {data(p.forward.q),
                                 data(p.forward.k),
                                 data(p.forward.v),
                                 p.forward.y,
                                 data(p.g),
                                 p.forward.log_sums,
                                 p.dq,
                                 p.dk,
                                 p.dv,
                                 rows,
                                 rows + row_bytes_,
                                 &scale,
                                 &one};
  if (p.forward.causal) pointers.push_back(&unseen);
  std::byte* const mask = rows + row_bytes_ + dq_bytes_;
  if (mask_bytes_ > 0) {
    const Attention& f = p.forward;
    PELTON_CUDA(spread_rows(f.mask, mask, elem_bytes(f.mask_type), f.mask_strides[0] ? f.n : 1,
                            f.mask_strides[1] ? f.heads : 1, f.queries, f.keys, f.mask_strides[0],
                            f.mask_strides[1], stream));
    pointers.push_back(mask);
  } else if (p.forward.mask_kind != Attention::no_mask) {
    pointers.push_back(data(p.forward.mask));
  }
  plan_->run(pointers, mask + mask_bytes_, stream);
}

CudnnAttentionBackwards cudnn_attention_backwards(const AttentionBackward& problem, const std::string& only) {
  CudnnAttentionBackwards out;
  const Attention& p = problem.forward;
  std::string plan;
  if (!takes(p) || p.groups != p.heads || !plan_wanted(only, plan)) return out;
  Builder b(p, cudnn_machine());
  CudnnGraph& g = b.graph;
  const TensorRef q = b.rows(p.heads, p.queries, p.depth, p.q_strides),
                  kt = b.columns(p.heads, p.keys, p.depth, p.k_strides),
                  vt = b.columns(p.heads, p.keys, p.width, p.v_strides),
                  y = b.rows(p.heads, p.queries, p.width, p.y_strides),
                  dy = b.rows(p.heads, p.queries, p.width, problem.g_strides), log_sums = b.row_numbers(true),
                  dq = b.rows(p.heads, p.queries, p.depth, problem.dq_strides),
                  dk = b.rows(p.heads, p.keys, p.depth, problem.dk_strides),
                  dv = b.rows(p.heads, p.keys, p.width, problem.dv_strides);
  const TensorRef row_sums = b.row_numbers(true);
  const Sizes queries = {p.n, p.heads, p.queries, p.depth}, keys = {p.n, p.heads, p.keys, p.depth},
              values = {p.n, p.heads, p.queries, p.width};
  const TensorRef wide_dq = g.tensor(DType::f32, queries, Builder::dense(queries));
  const TensorRef scale = g.host_number(), one = g.host_number();
  const TensorRef unseen = p.causal ? g.host_number() : -1, mask = b.mask(true);

  const TensorRef weighed = g.tensor(DType::f32, values, Builder::dense(values), false),
                  sums = b.row_numbers(false);
  g.pointwise(CUDNN_POINTWISE_MUL, dy, y, weighed);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, weighed, sums);
  g.pointwise(CUDNN_POINTWISE_MUL, sums, one, row_sums);

  const TensorRef s = b.scored(q, kt, scale, mask);
  const TensorRef shares =
      b.point(CUDNN_POINTWISE_EXP, b.hide_later_keys(b.point(CUDNN_POINTWISE_SUB, s, log_sums), unseen));
  g.matmul(b.transposed_scores(shares), dy, dv);

  const TensorRef ds = b.point(
      CUDNN_POINTWISE_MUL,
      b.point(CUDNN_POINTWISE_MUL, b.point(CUDNN_POINTWISE_SUB, b.product(dy, vt), row_sums), shares), scale);
  g.matmul(b.transposed_scores(ds), q, dk);
  const TensorRef k = g.tensor(b.type(), keys, {p.k_strides[0], p.k_strides[1], p.k_strides[2], 1}, false);
  g.reshape(kt, k);
  g.matmul(ds, k, wide_dq);
  g.pointwise(CUDNN_POINTWISE_IDENTITY, wide_dq, -1, dq);
  for (auto& made : g.plans({.only = plan, .count = kPlans})) out.emplace_back(std::move(made), problem);
  return out;
}

std::vector<std::string> cudnn_attention_names() {
  std::vector<std::string> names;
  for (int i = 0; i < kCudnnProposals; ++i) names.push_back(cat(kPrefix, i));
  return names;
}

}  // namespace pelton::backend::cuda
