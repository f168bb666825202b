// SPDX-License-Identifier: Apache-2.0
// Which of the library's proposals a product uses: the fastest, and of those with an activation none that
// makes a number of NaN.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "backend/cuda/libraries.h"
#include "backend/cuda/matmul_call.h"
#include "backend/cuda/tactics.h"
#include "base/log.h"
#include "device/artifacts.h"
#include "tensor/tensor.h"

namespace pelton::backend::cuda {

DeviceBuffer trial_buffer(int64_t bytes) {
  DeviceBuffer out(bytes, "timing a matrix product");
  std::vector<uint16_t> block(1 << 19);
  uint32_t x = 12345;
  for (uint16_t& v : block) {
    x = x * 1664525 + 1013904223;
    v = static_cast<uint16_t>(0x3000 + (x >> 20) % 0x0c00 +
                              (x & 0x8000));  // 0.1 to 1 as f16, finite as all others
  }
  auto chunk = static_cast<int64_t>(block.size() * 2);
  for (int64_t at = 0; at < bytes; at += chunk)
    PELTON_CUDA(cudaMemcpy(static_cast<std::byte*>(out.get()) + at, block.data(),
                           static_cast<size_t>(std::min(chunk, bytes - at)), cudaMemcpyHostToDevice));
  return out;
}

namespace {

constexpr int64_t kWorkspaceBytes = 32 << 20;
constexpr int kProposals = 24;

// Buffers of a problem's sizes with numbers in them. Of a ReLU's gradient every element passes.
struct Trial {
  explicit Trial(const MatmulProblem& p) {
    auto bytes = [&](int64_t elements, DType t) { return byte_size(t, elements); };
    a = trial_buffer(bytes(p.m * std::max(p.k, p.pitch_a) + (p.batch - 1) * p.stride_a, p.in));
    b = trial_buffer(bytes(std::max(p.n, p.pitch_b) * p.k + (p.batch - 1) * p.stride_b, p.b_type()));
    d = trial_buffer(bytes(p.m * std::max(p.n, p.pitch_d) + (p.batch - 1) * p.stride_d, p.out));
    if (p.residual) c = trial_buffer(d.bytes());
    if (p.bias) bias = trial_buffer(bytes(p.n, p.out));
    if (p.sums != MatmulProblem::Sums::none) bias = trial_buffer(bytes(std::max(p.m, p.n), p.sums_type));
    if (p.gradient_of == Activation::relu) {
      forward = DeviceBuffer(p.m * mask_pitch(p.n) / 8, "timing a matrix product");
      PELTON_CUDA(cudaMemset(forward.get(), 0xFF, static_cast<size_t>(forward.bytes())));
    }
    if (p.gradient_of == Activation::gelu_tanh) forward = trial_buffer(d.bytes());
    workspace = DeviceBuffer(kWorkspaceBytes, "timing a matrix product");
  }
  DeviceBuffer a, b, c, d, bias, forward, workspace;
};

// Some of the library's kernels make 0 of NaN in what they do behind the product.
bool may_lose_nan(const MatmulProblem& p) {
  return p.activation != Activation::none || p.gradient_of != Activation::none;
}

// Whether a row of D is NaN throughout where the row of A holds one. Leaves A as it was.
bool keeps_nan(const MatmulProblem& p, const Trial& t, const std::function<void(cudaStream_t)>& run) {
  Tensor nan(p.in, {1}), was(p.in, {1}), row(p.out, {p.n});
  nan.set_double(0, std::numeric_limits<double>::quiet_NaN());
  const auto element = static_cast<size_t>(nan.bytes());
  PELTON_CUDA(cudaMemcpy(was.mutable_data(), t.a.get(), element, cudaMemcpyDeviceToHost));
  PELTON_CUDA(cudaMemcpy(t.a.get(), nan.data(), element, cudaMemcpyHostToDevice));
  bool kept = false;
  try {
    StreamHandle stream = make_stream();
    run(stream.get());
    PELTON_CUDA(cudaStreamSynchronize(stream.get()));
    PELTON_CUDA(
        cudaMemcpy(row.mutable_data(), t.d.get(), static_cast<size_t>(row.bytes()), cudaMemcpyDeviceToHost));
    kept = true;
    for (int64_t i = 0; i < row.count(); ++i) kept &= std::isnan(row.get_double(i));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::driver) throw;  // what does not run is left out
  }
  PELTON_CUDA(cudaMemcpy(t.a.get(), was.data(), element, cudaMemcpyHostToDevice));
  return kept;
}

}  // namespace

std::vector<MatmulCall::Algorithm> MatmulCall::proposals() const {
  PreferenceHandle preference;
  PELTON_CUDA(cublas_lt().cublasLtMatmulPreferenceCreate(preference.out()));
  auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    PELTON_CUDA(
        cublas_lt().cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
  // What the arena guarantees, as far as the sizes keep it.
  for (auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, static_cast<uint32_t>(16));
  cublasLtMatmulHeuristicResult_t found[kProposals];
  int count = 0;
  alignas(256) static const std::byte somewhere[256] = {};
  MatmulHandle h = description(somewhere, somewhere);
  cublasStatus_t status =
      cublas_lt().cublasLtMatmulAlgoGetHeuristic(cublas_lt_handle(), h.get(), b_.get(), a_.get(), d_.get(),
                                                 d_.get(), preference.get(), kProposals, found, &count);
  std::vector<Algorithm> out;
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || count == 0) return out;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  for (int i = 0; i < count; ++i)
    out.push_back({found[i].algo, static_cast<int64_t>(found[i].workspaceSize)});
  return out;
}

std::optional<size_t> MatmulCall::pick(const std::vector<Algorithm>& found) {
  const bool judge = may_lose_nan(p_);
  // Answers that are kept under a problem's own key are of before proposals were judged.
  const std::string key = judge ? cat(p_.key(), " keeps nan") : p_.key();
  std::vector<std::string> names;
  for (size_t i = 0; i < found.size(); ++i) names.push_back(cat("proposal ", i));
  if (std::optional<size_t> known = known_fastest(key, names)) return known;
  if (found.size() == 1 && !judge) return 0;
  const auto choose = [&]() -> std::optional<size_t> {
    const Trial t(p_);
    auto run_proposal = [&](size_t i, cudaStream_t stream) {
      algorithm_ = found[i];
      run(t.a.get(), t.b.get(), t.c.get(), t.d.get(), t.bias.get(), t.workspace.get(), stream,
          t.forward.get());
    };
    std::vector<size_t> sound;
    for (size_t i = 0; i < found.size(); ++i)
      if (!judge || keeps_nan(p_, t, [&](cudaStream_t stream) { run_proposal(i, stream); }))
        sound.push_back(i);
    if (sound.empty()) return std::nullopt;
    std::vector<Way> ways;
    for (size_t i : sound)
      ways.push_back({names[i], [&, i](cudaStream_t stream) { run_proposal(i, stream); }});
    return sound[fastest(key, ways)];
  };
  if (judge) return sound_in_memory(key, choose);
  return fastest_in_memory(key, [&] { return *choose(); });
}

bool MatmulCall::choose() {
  static auto* const answers = new std::map<std::string, Algorithm>;
  static std::mutex mutex;
  int device = 0;
  PELTON_CUDA(cudaGetDevice(&device));
  std::string key = cat("gpu ", device, device::may_choose_by_timing() ? " " : " by order ", p_.key());
  std::lock_guard lock(mutex);  // timing one at a time, too
  if (auto it = answers->find(key); it != answers->end()) {
    algorithm_ = it->second;
    return true;
  }
  const std::vector<Algorithm> found = proposals();
  const std::optional<size_t> best = found.empty() ? std::nullopt : pick(found);
  if (!best) return false;
  algorithm_ = found[*best];
  (*answers)[key] = algorithm_;
  return true;
}

}  // namespace pelton::backend::cuda
