// SPDX-License-Identifier: Apache-2.0
// attention(q[N,H,L,D], k[N,G,M,D], v[N,G,M,E], [mask]) with scores in blocks: a block of queries meets a
// block of keys at a time, and running maxima and sums re-scale what is there (softmax "online"), so memory
// does not grow with L * M. When all keys fit one block nothing is ever re-scaled.
#include <cmath>
#include <cstring>

#include "backend/cpu/implementations.h"
#include "backend/cpu/own/gemm.h"
#include "backend/cpu/support.h"
#include "backend/cpu/tile/lanes.h"
#include "ir/op.h"

namespace pelton::backend::cpu {
namespace {

constexpr int64_t kQueries = 64, kKeys = 1024;

class AttentionKernel final : public Kernel {
 public:
  AttentionKernel(const Instance& instance, const device::Target& target) {
    const Dims &q = instance.inputs[0].dims, &k = instance.inputs[1].dims, &v = instance.inputs[2].dims;
    n_ = q[0];
    heads_ = q[1];
    queries_ = q[2];
    depth_ = q[3];
    groups_ = k[1];
    keys_ = k[2];
    width_ = v[3];
    type_ = instance.inputs[0].dtype;
    const ir::Node& node = instance.node();
    scale_ = static_cast<float>(node.get_real("scale"));
    if (scale_ == 0) scale_ = static_cast<float>(1 / std::sqrt(static_cast<double>(depth_)));
    cap_ = static_cast<float>(node.get_real("softcap"));
    causal_ = node.get_bool("causal");
    if (instance.has(3)) {
      const TensorSpec& m = instance.inputs[3];
      mask_type_ = m.dtype;
      has_mask_ = true;
      const std::vector<int64_t> s = row_major_strides(m.dims);
      const size_t skip = 4 - m.dims.size();
      for (size_t d = 0; d < m.dims.size(); ++d) mask_strides_[skip + d] = m.dims[d] == 1 ? 0 : s[d];
    }
    has_lse_ = instance.outputs.size() > 1;
    load_ = load_function(type_, target.isa);
    store_ = store_function(type_, target.isa);
    if (has_mask_) load_mask_ = load_function(mask_type_, target.isa);
    gemm_ = gemm_function(target.isa);
    exp_sum_ = f32_step(Code::exp_sum, target.isa);
    max_ = f32_step(Code::reduce_max, target.isa);
    tanh_ = f32_step(Code::tanh, target.isa);
    // Heads are the units of work; few heads are split by queries as well.
    const int64_t pairs = n_ * heads_, blocks = (queries_ + kQueries - 1) / kQueries;
    splits_ = pairs >= 8 ? 1 : std::min<int64_t>(blocks, pairs ? (8 + pairs - 1) / pairs : 1);
    splits_ = std::max<int64_t>(1, splits_);
    split_ = ((blocks + splits_ - 1) / splits_) * kQueries;
    units_ = queries_ > 0 ? pairs * splits_ : 0;
    const int64_t work = std::min(split_, queries_) * keys_ * (depth_ + width_ + 16);
    grain_ = std::max(grain_for(units_, work / 8), (units_ + 15) / 16);
    block_keys_ = std::min(keys_, kKeys);
    columns_ = whole(block_keys_);
  }
  int64_t scratch_bytes() const override {
    return units_ ? (units_ + grain_ - 1) / grain_ * chunk_floats() * 4 : 0;
  }
  void run(const RunArgs& args) const override {
    parallel_for(0, units_, grain_, [&](int64_t begin, int64_t end) {
      float* memory = static_cast<float*>(args.scratch) + begin / grain_ * chunk_floats();
      for (int64_t u = begin; u < end; ++u) unit(u / splits_, u % splits_, args, memory);
    });
  }

 private:
  // Columns that no product treats one by one.
  static int64_t whole(int64_t columns) { return (columns + 15) / 16 * 16; }
  // Per chunk: transposed keys [D, columns], values [columns, E], scaled queries [64, D], scores [64,
  // columns], results [64, E], maxima, sums, a row of mask.
  int64_t chunk_floats() const {
    return (columns_ * (depth_ + width_ + kQueries + 1) + kQueries * (depth_ + width_ + 2) + 15 + 64) / 16 *
           16;
  }
  void load(const void* from, int64_t index, int64_t stride, float* to, int64_t count) const {
    load_(static_cast<const std::byte*>(from) + index * (bits(type_) / 8), stride, to, count);
  }

  void unit(int64_t pair, int64_t part, const RunArgs& args, float* memory) const {
    float* keys_t = memory;
    float* values = keys_t + depth_ * columns_;
    float* mask = values + columns_ * width_;
    float* scores = mask + columns_;
    float* q = scores + kQueries * columns_;
    float* result = q + kQueries * depth_;
    float* top = result + kQueries * width_;
    float* sum = top + kQueries;
    const int64_t n = pair / heads_, h = pair % heads_, g = n * groups_ + h / (heads_ / groups_);
    const bool one_block = keys_ <= block_keys_;
    bool loaded = false;
    for (int64_t l0 = part * split_; l0 < std::min(queries_, (part + 1) * split_); l0 += kQueries) {
      const int64_t rows = std::min(kQueries, queries_ - l0);
      load(args.in[0], (pair * queries_ + l0) * depth_, 1, q, rows * depth_);
      for (int64_t i = 0; i < rows * depth_; ++i) q[i] *= scale_;
      std::fill_n(top, rows, -HUGE_VALF);
      std::fill_n(sum, rows, 0.0f);
      std::fill_n(result, rows * width_, 0.0f);
      for (int64_t m0 = 0; m0 < keys_; m0 += block_keys_) {
        // Keys beyond the last query's sight.
        if (causal_ && m0 + queries_ > l0 + rows - 1 + keys_) break;
        const int64_t count = std::min(block_keys_, keys_ - m0);
        if (!one_block || !loaded) {
          load_keys(args.in[1], g * keys_ + m0, count, keys_t);
          load(args.in[2], (g * keys_ + m0) * width_, 1, values, count * width_);
          loaded = true;
        }
        gemm_(rows, whole(count), depth_, q, depth_, keys_t, columns_, scores, columns_, false);
        for (int64_t r = 0; r < rows; ++r) {
          float* s = scores + r * columns_;
          finish_scores(s, n, h, l0 + r, m0, count, args, mask);
          soften(s, count, top[r], sum[r], result + r * width_);
        }
        gemm_(rows, width_, count, scores, columns_, values, width_, result, width_, true);
      }
      for (int64_t r = 0; r < rows; ++r) {
        float* y = result + r * width_;
        const float inverse = top[r] == -HUGE_VALF ? 0.0f : 1 / sum[r];
        for (int64_t e = 0; e < width_; ++e) y[e] *= inverse;
        const int64_t row = pair * queries_ + l0 + r;
        if (has_lse_ && args.out[1])
          static_cast<float*>(args.out[1])[row] = top[r] == -HUGE_VALF ? top[r] : top[r] + std::log(sum[r]);
        store_(y, static_cast<std::byte*>(args.out[0]) + row * width_ * (bits(type_) / 8), 1, width_);
      }
    }
  }
  // [count, D] to [D, columns], with zeros up to a whole vector
  void load_keys(const void* from, int64_t first, int64_t count, float* to) const {
    for (int64_t d = 0; d < depth_; ++d) {
      load(from, first * depth_ + d, depth_, to + d * columns_, count);
      std::fill(to + d * columns_ + count, to + d * columns_ + whole(count), 0.0f);
    }
  }
  void finish_scores(float* s, int64_t n, int64_t h, int64_t l, int64_t m0, int64_t count,
                     const RunArgs& args, float* mask) const {
    if (cap_ != 0) {
      for (int64_t m = 0; m < count; ++m) s[m] /= cap_;
      Step step;
      step.in[0] = s;
      step.out = s;
      tanh_(step, count);
      for (int64_t m = 0; m < count; ++m) s[m] *= cap_;
    }
    if (has_mask_) {
      const int64_t at =
          n * mask_strides_[0] + h * mask_strides_[1] + l * mask_strides_[2] + m0 * mask_strides_[3];
      const auto* from = static_cast<const std::byte*>(args.in[3]) + at * (bits(mask_type_) / 8);
      if (mask_type_ == DType::boolean) {
        const auto* allowed = reinterpret_cast<const uint8_t*>(from);
        for (int64_t m = 0; m < count; ++m)
          if (!allowed[m * mask_strides_[3]]) s[m] = -HUGE_VALF;
      } else {
        load_mask_(from, mask_strides_[3], mask, count);
        for (int64_t m = 0; m < count; ++m) s[m] += mask[m];
      }
    }
    if (causal_)
      for (int64_t m = std::max<int64_t>(0, l + keys_ - queries_ + 1 - m0); m < count; ++m) s[m] = -HUGE_VALF;
  }
  // Scores to exponentials against the running maximum.
  void soften(float* s, int64_t count, float& top, float& sum, float* result) const {
    float block_top;
    Step step;
    step.in[0] = s;
    step.out = &block_top;
    max_(step, count);
    const float new_top = std::isnan(block_top) ? block_top : std::max(top, block_top);
    if (new_top == -HUGE_VALF) {  // nothing seen yet
      std::fill_n(s, count, 0.0f);
      return;
    }
    const float shrink = top == new_top ? 1.0f : std::exp(top - new_top);
    float block_sum;
    step.in[1] = &new_top;
    step.one[1] = true;
    step.out = s;
    step.out2 = &block_sum;
    exp_sum_(step, count);
    if (shrink != 1.0f)
      for (int64_t e = 0; e < width_; ++e) result[e] *= shrink;
    sum = sum * shrink + block_sum;
    top = new_top;
  }

  int64_t n_, heads_, queries_, depth_, groups_, keys_, width_;
  int64_t columns_ = 0;  // of a block of keys, in whole vectors
  int64_t splits_ = 1, split_ = kQueries, units_ = 0, grain_ = 1, block_keys_ = 0;
  DType type_ = DType::f32, mask_type_ = DType::f32;
  int64_t mask_strides_[4] = {};
  float scale_ = 1, cap_ = 0;
  bool causal_ = false, has_mask_ = false, has_lse_ = false;
  LoadFunction load_ = nullptr, load_mask_ = nullptr;
  StoreFunction store_ = nullptr;
  GemmFunction gemm_ = nullptr;
  StepFunction exp_sum_ = nullptr, max_ = nullptr, tanh_ = nullptr;
};

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target&) {
  if (std::string why = refuse_layouts(graph, node); !why.empty()) return why;
  if (const DType t = input_dtype(graph, node, 0); !is_real(t))
    return cat("needs f32, f16 or bf16, got ", name(t));
  return {};
}
std::unique_ptr<Kernel> prepare(const Instance& instance, const device::Target& target) {
  return std::make_unique<AttentionKernel>(instance, target);
}

}  // namespace

void add_attention(Registry& registry) {
  registry.add({"cpu.attention", {"attention"}, refuse, prepare});
}

}  // namespace pelton::backend::cpu
