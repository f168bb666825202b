// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/matmul_call.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "backend/cuda/libraries.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/tactics.h"
#include "base/log.h"
#include "device/artifacts.h"
#include "tensor/tensor.h"

namespace pelton::backend::cuda {
namespace {

constexpr int64_t kWorkspaceBytes = 32 << 20;
constexpr int kProposals = 24;

cudaDataType_t data_type(DType t) {
  switch (t) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::i8:
      return CUDA_R_8I;
    case DType::i32:
      return CUDA_R_32I;
    case DType::f8e4m3fn:
      return CUDA_R_8F_E4M3;
    case DType::f8e5m2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

template <class T>
void set(const MatmulHandle& h, cublasLtMatmulDescAttributes_t attribute, T value) {
  PELTON_CUDA(cublas_lt().cublasLtMatmulDescSetAttribute(h.get(), attribute, &value, sizeof value));
}

// The library thinks in columns: a row-major [rows, columns] is its [columns, rows].
LayoutHandle layout(DType t, int64_t rows, int64_t columns, int64_t batch, int64_t stride,
                    int64_t pitch = 0) {
  LayoutHandle h;
  PELTON_CUDA(cublas_lt().cublasLtMatrixLayoutCreate(h.out(), data_type(t), static_cast<uint64_t>(columns),
                                                     static_cast<uint64_t>(rows), pitch ? pitch : columns));
  if (batch > 1) {
    auto count = static_cast<int32_t>(batch);
    PELTON_CUDA(cublas_lt().cublasLtMatrixLayoutSetAttribute(h.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                             &count, sizeof count));
    PELTON_CUDA(cublas_lt().cublasLtMatrixLayoutSetAttribute(
        h.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
  }
  return h;
}

// Buffers of a problem's sizes with numbers in them, for timing.
struct Trial {
  DeviceBuffer a, b, c, d, bias, forward, workspace;
};

}  // namespace

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

// Whether a row of D is NaN throughout where the row of A holds one: some of the library's kernels make 0 of
// it in their activation. Leaves A as it was.
bool keeps_nan(const MatmulProblem& p, const DeviceBuffer& a, const DeviceBuffer& d,
               const std::function<void(cudaStream_t)>& run) {
  Tensor nan(p.in, {1}), was(p.in, {1}), row(p.out, {p.n});
  nan.set_double(0, std::numeric_limits<double>::quiet_NaN());
  const auto element = static_cast<size_t>(nan.bytes());
  PELTON_CUDA(cudaMemcpy(was.mutable_data(), a.get(), element, cudaMemcpyDeviceToHost));
  PELTON_CUDA(cudaMemcpy(a.get(), nan.data(), element, cudaMemcpyHostToDevice));
  bool kept = false;
  try {
    StreamHandle stream = make_stream();
    run(stream.get());
    PELTON_CUDA(cudaStreamSynchronize(stream.get()));
    PELTON_CUDA(
        cudaMemcpy(row.mutable_data(), d.get(), static_cast<size_t>(row.bytes()), cudaMemcpyDeviceToHost));
    kept = true;
    for (int64_t i = 0; i < row.count(); ++i) kept &= std::isnan(row.get_double(i));
  } catch (const Error& e) {
    if (e.code() != ErrorCode::driver) throw;  // what does not run is left out
  }
  PELTON_CUDA(cudaMemcpy(a.get(), was.data(), element, cudaMemcpyHostToDevice));
  return kept;
}

}  // namespace

std::string MatmulProblem::key() const {
  return cat("matmul ", name(in), in_b ? cat(" by ", name(*in_b)) : "", " ", name(out), " ", m, "x", n, "x",
             k, " batch ", batch, transpose_a ? " ta" : "", transpose_b ? " tb" : "", " strides ", stride_a,
             " ", stride_b, " ", stride_d, residual ? " residual" : "", bias ? " bias" : "",
             activation == Activation::relu        ? " relu"
             : activation == Activation::gelu_tanh ? " gelu"
                                                   : "",
             gradient_of == Activation::relu        ? " behind relu"
             : gradient_of == Activation::gelu_tanh ? " behind gelu"
                                                    : "",
             sums == Sums::none ? "" : cat(" sums of ", sums == Sums::of_a ? "A " : "B ", name(sums_type)),
             tf32 ? " tf32" : "", pitch_a ? cat(" rows of A ", pitch_a) : "",
             pitch_b ? cat(" rows of B ", pitch_b) : "", pitch_d ? cat(" rows of D ", pitch_d) : "");
}

MatmulCall::MatmulCall(const MatmulProblem& problem) : p_(problem) {
  a_ = p_.transpose_a ? layout(p_.in, p_.k, p_.m, p_.batch, p_.stride_a)
                      : layout(p_.in, p_.m, p_.k, p_.batch, p_.stride_a, p_.pitch_a);
  b_ = p_.transpose_b ? layout(p_.b_type(), p_.n, p_.k, p_.batch, p_.stride_b)
                      : layout(p_.b_type(), p_.k, p_.n, p_.batch, p_.stride_b, p_.pitch_b);
  d_ = layout(p_.out, p_.m, p_.n, p_.batch, p_.stride_d, p_.pitch_d);
}

MatmulHandle MatmulCall::description(const void* bias, const void* forward) const {
  MatmulHandle h;
  cublasComputeType_t compute = p_.in == DType::f64              ? CUBLAS_COMPUTE_64F
                                : p_.in == DType::i8             ? CUBLAS_COMPUTE_32I
                                : p_.in == DType::f32 && p_.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                 : CUBLAS_COMPUTE_32F;
  const cudaDataType_t scale = p_.in == DType::f64  ? CUDA_R_64F
                               : p_.in == DType::i8 ? CUDA_R_32I
                                                    : CUDA_R_32F;
  PELTON_CUDA(cublas_lt().cublasLtMatmulDescCreate(h.out(), compute, scale));
  // D' = B' A' in columns.
  set(h, CUBLASLT_MATMUL_DESC_TRANSA, p_.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(h, CUBLASLT_MATMUL_DESC_TRANSB, p_.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  if (p_.activation == Activation::relu)
    epilogue = p_.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  else if (p_.activation == Activation::gelu_tanh)
    epilogue = p_.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  else if (p_.bias)
    epilogue = CUBLASLT_EPILOGUE_BIAS;
  else if (p_.gradient_of == Activation::relu)
    epilogue = CUBLASLT_EPILOGUE_DRELU;
  else if (p_.gradient_of == Activation::gelu_tanh)
    epilogue = CUBLASLT_EPILOGUE_DGELU;
  else if (p_.sums != MatmulProblem::Sums::none)  // its A is our B
    epilogue = p_.sums == MatmulProblem::Sums::of_b ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
  set(h, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (p_.gradient_of != Activation::none) {
    set(h, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, forward);
    set(h, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
        p_.gradient_of == Activation::relu ? mask_pitch(p_.n) : p_.n);
  }
  if (p_.sums != MatmulProblem::Sums::none) {
    set(h, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(p_.sums_type));
    set(h, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  if (p_.bias) {
    set(h, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(p_.out));
    set(h, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  return h;
}

void MatmulCall::run(const void* a, const void* b, const void* c, void* d, const void* bias, void* workspace,
                     cudaStream_t stream, const void* forward) const {
  MatmulHandle h = description(bias, forward);
  float alpha = p_.alpha, beta = p_.residual ? 1.0f : 0.0f;
  double alpha64 = alpha, beta64 = beta;
  int32_t alpha_int = 1, beta_int = 0;
  void *pa = &alpha, *pb = &beta;
  if (p_.in == DType::f64) pa = &alpha64, pb = &beta64;
  if (p_.in == DType::i8) pa = &alpha_int, pb = &beta_int;
  PELTON_CUDA(cublas_lt().cublasLtMatmul(cublas_lt_handle(), h.get(), pa, b, b_.get(), a, a_.get(), pb,
                                         p_.residual ? c : d, d_.get(), d, d_.get(), &algorithm_, workspace,
                                         static_cast<size_t>(workspace_bytes_), stream));
}

bool MatmulCall::choose() {
  struct Answer {
    cublasLtMatmulAlgo_t algorithm;
    int64_t workspace_bytes;
  };
  static auto* const answers = new std::map<std::string, Answer>;
  static std::mutex mutex;
  int device = 0;
  PELTON_CUDA(cudaGetDevice(&device));
  std::string key = cat("gpu ", device, device::may_choose_by_timing() ? " " : " by order ", p_.key());
  std::lock_guard lock(mutex);  // timing one at a time, too
  if (auto it = answers->find(key); it != answers->end()) {
    algorithm_ = it->second.algorithm;
    workspace_bytes_ = it->second.workspace_bytes;
    return true;
  }
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
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || count == 0) return false;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  size_t best = 0;
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(cat("proposal ", i));
  if (std::optional<size_t> known = known_fastest(p_.key(), names)) {
    best = *known;
  } else if (count > 1) {
    best = fastest_in_memory(p_.key(), [&] {
      auto bytes = [&](int64_t elements, DType t) { return byte_size(t, elements); };
      Trial t;
      t.a = trial_buffer(bytes(p_.m * std::max(p_.k, p_.pitch_a) + (p_.batch - 1) * p_.stride_a, p_.in));
      t.b =
          trial_buffer(bytes(std::max(p_.n, p_.pitch_b) * p_.k + (p_.batch - 1) * p_.stride_b, p_.b_type()));
      t.d = trial_buffer(bytes(p_.m * std::max(p_.n, p_.pitch_d) + (p_.batch - 1) * p_.stride_d, p_.out));
      if (p_.residual) t.c = trial_buffer(t.d.bytes());
      if (p_.bias) t.bias = trial_buffer(bytes(p_.n, p_.out));
      if (p_.sums != MatmulProblem::Sums::none)
        t.bias = trial_buffer(bytes(std::max(p_.m, p_.n), p_.sums_type));
      if (p_.gradient_of == Activation::relu) t.forward = trial_buffer(p_.m * mask_pitch(p_.n) / 8);
      if (p_.gradient_of == Activation::gelu_tanh) t.forward = trial_buffer(t.d.bytes());
      t.workspace = DeviceBuffer(kWorkspaceBytes, "timing a matrix product");
      auto run_proposal = [&](int i, cudaStream_t stream) {
        algorithm_ = found[i].algo;
        workspace_bytes_ = static_cast<int64_t>(found[i].workspaceSize);
        run(t.a.get(), t.b.get(), t.c.get(), t.d.get(), t.bias.get(), t.workspace.get(), stream,
            t.forward.get());
      };
      std::vector<size_t> sound;
      for (int i = 0; i < count; ++i)
        if (p_.activation == Activation::none ||
            keeps_nan(p_, t.a, t.d, [&](cudaStream_t stream) { run_proposal(i, stream); }))
          sound.push_back(static_cast<size_t>(i));
      if (sound.empty()) {
        log_warn(cat("cuBLASLt makes a number of NaN in ", p_.key()));
        for (int i = 0; i < count; ++i) sound.push_back(static_cast<size_t>(i));
      }
      std::vector<Way> ways;
      for (size_t i : sound)
        ways.push_back(
            {names[i], [&, i](cudaStream_t stream) { run_proposal(static_cast<int>(i), stream); }});
      return sound[fastest(p_.key(), ways)];
    });
  }
  algorithm_ = found[best].algo;
  workspace_bytes_ = static_cast<int64_t>(found[best].workspaceSize);
  (*answers)[key] = {algorithm_, workspace_bytes_};
  return true;
}

std::unique_ptr<MatmulCall> MatmulCall::make(const MatmulProblem& problem) {
  std::unique_ptr<MatmulCall> call(new MatmulCall(problem));
  return call->choose() ? std::move(call) : nullptr;
}

}  // namespace pelton::backend::cuda
