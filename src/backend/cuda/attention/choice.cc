// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/attention/choice.h"

#include <algorithm>

#include "backend/cuda/memory.h"
#include "backend/cuda/own/move_taps.h"
#include "backend/cuda/tactics.h"
#include "base/cat.h"
#include "device/artifacts.h"

namespace pelton::backend::cuda {
namespace {

// Operations below which cuDNN's plans, a second to make, are not looked for.
constexpr double kWorthTiming = 2e8, kWorthTimingInTraining = 2e9;
constexpr const char *kOurs = "ours", *kWhat = "timing attention";

bool worth_timing(const Attention& p, bool in_training) {
  return 2.0 * p.n * p.heads * p.queries * p.keys * (p.depth + p.width) >=
         (in_training ? kWorthTimingInTraining : kWorthTiming);
}
std::string strides(const int64_t (&s)[3]) {
  return cat(s[0], ",", s[1], ",", s[2], " ");
}
std::string key_of(const char* what, const Attention& p) {
  std::string mask;
  if (p.mask_kind != Attention::no_mask)
    mask = cat("mask ",
               p.mask_kind == Attention::boolean ? "bool"
               : elem_bytes(p.mask_type) == 4    ? "f32"
                                                 : "16",
               " ", p.mask_strides[0], ",", p.mask_strides[1], ",", p.mask_strides[2], ",", p.mask_strides[3],
               " ");
  return cat(what, p.type == Elem::f16 ? " f16 " : " bf16 ", p.n, "x", p.heads, "/", p.groups, " ", p.queries,
             "x", p.keys, " ", p.depth, ",", p.width, p.causal ? " causal " : " ", mask, strides(p.q_strides),
             strides(p.k_strides), strides(p.v_strides), strides(p.y_strides));
}

// Numbers to time with.
class Trial {
 public:
  Trial() : stream_(make_stream()) {}
  // As far as these strides reach.
  void* rows(const Attention& p, int heads, int rows, int columns, const int64_t (&s)[3]) {
    return noise(p.type, (p.n - 1) * s[0] + (heads - 1) * s[1] + (rows - 1) * s[2] + columns);
  }
  void* noise(Elem type, int64_t count) {
    memory_.emplace_back(count * elem_bytes(type), kWhat);
    PELTON_CUDA(fill_noise(memory_.back().get(), type, count, stream_.get()));
    return memory_.back().get();
  }
  void* bytes(int64_t count) { return memory_.emplace_back(std::max<int64_t>(count, 1), kWhat).get(); }
  void fill(Attention& p) {
    p.q = rows(p, p.heads, p.queries, p.depth, p.q_strides);
    p.k = rows(p, p.groups, p.keys, p.depth, p.k_strides);
    p.v = rows(p, p.groups, p.keys, p.width, p.v_strides);
    p.y = rows(p, p.heads, p.queries, p.width, p.y_strides);
    p.log_sums = static_cast<float*>(noise(Elem::f32, int64_t{1} * p.n * p.heads * p.queries));
    const int64_t sizes[] = {p.n, p.heads, p.queries, p.keys};
    int64_t masked = 1;
    for (int d = 0; d < 4; ++d) masked += (sizes[d] - 1) * p.mask_strides[d];
    if (p.mask_kind == Attention::added) p.mask = noise(p.mask_type, masked);
  }
  void ready() { PELTON_CUDA(cudaStreamSynchronize(stream_.get())); }

 private:
  StreamHandle stream_;
  std::vector<DeviceBuffer> memory_;
};

// The faster of ours and the plans that `make` (of a name, or of none for all) gives.
template <class Plan, class Problem, class Make, class Fill, class Ours>
std::optional<Plan> faster(const std::string& key, Problem p, const Make& make, const Fill& fill,
                           const Ours& ours) {
  std::vector<std::string> names = cudnn_attention_names();
  names.push_back(kOurs);
  if (std::optional<size_t> known = known_fastest(key, names)) {
    if (names[*known] == kOurs) return {};
    std::vector<Plan> plans = make(names[*known]);
    if (!plans.empty()) {
      plans[0].keep();
      return std::move(plans[0]);
    }
  }
  if (timing_is_over()) return {};
  std::vector<Plan> plans = make("");
  if (plans.empty()) return {};
  const size_t best = fastest_in_memory(key, [&] {
    Trial trial;
    fill(trial, p);
    int64_t scratch = 0;
    for (const Plan& plan : plans) scratch = std::max(scratch, plan.scratch_bytes());
    void* const memory = trial.bytes(scratch);
    trial.ready();
    std::vector<Way> ways{{kOurs, [&](cudaStream_t s) { ours(p, s); }}};
    for (const Plan& plan : plans)
      ways.push_back({plan.name(), [&](cudaStream_t s) { plan.run(p, memory, s); }});
    return fastest(key, ways);
  });
  if (best == 0) return {};
  plans[best - 1].keep();
  return std::move(plans[best - 1]);
}

}  // namespace

size_t keep_attention_plans(const Attention& problem, bool sums, const CudnnMachine& machine) {
  return worth_timing(problem, sums) ? keep_cudnn_attentions(problem, sums, machine) : 0;
}

std::optional<CudnnAttention> faster_attention(const Attention& problem, bool sums) {
  if (!worth_timing(problem, sums)) return {};
  return faster<CudnnAttention>(
      cat(key_of("attention ", problem), sums ? "sums" : ""), problem,
      [&](const std::string& only) { return cudnn_attentions(problem, sums, only); },
      [&](Trial& trial, Attention& p) {
        trial.fill(p);
        if (!sums) p.log_sums = nullptr;
      },
      [](const Attention& p, cudaStream_t s) { PELTON_CUDA(attention(p, s)); });
}

std::optional<CudnnAttentionBackward> faster_attention_backward(const AttentionBackward& problem) {
  // cuDNN's last bits may differ from run to run; ours never do.
  if (!worth_timing(problem.forward, true) || !device::may_choose_by_timing()) return {};
  return faster<CudnnAttentionBackward>(
      cat(key_of("attention_backward ", problem.forward), strides(problem.g_strides),
          strides(problem.dq_strides), strides(problem.dk_strides), strides(problem.dv_strides)),
      problem, [&](const std::string& only) { return cudnn_attention_backwards(problem, only); },
      [](Trial& trial, AttentionBackward& b) {
        Attention& p = b.forward;
        trial.fill(p);
        b.g = trial.rows(p, p.heads, p.queries, p.width, b.g_strides);
        b.dq = trial.rows(p, p.heads, p.queries, p.depth, b.dq_strides);
        b.dk = trial.rows(p, p.groups, p.keys, p.depth, b.dk_strides);
        b.dv = trial.rows(p, p.groups, p.keys, p.width, b.dv_strides);
        b.row_sums = static_cast<float*>(trial.bytes(int64_t{4} * p.n * p.heads * p.queries));
      },
      [](const AttentionBackward& b, cudaStream_t s) { PELTON_CUDA(attention_backward(b, s)); });
}

}  // namespace pelton::backend::cuda
