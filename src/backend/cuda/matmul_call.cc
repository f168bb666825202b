// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/matmul_call.h"

#include "backend/cuda/libraries.h"

namespace pelton::backend::cuda {
namespace {

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
                                         p_.residual ? c : d, d_.get(), d, d_.get(), &algorithm_.algorithm,
                                         workspace, static_cast<size_t>(algorithm_.workspace_bytes), stream));
}

std::unique_ptr<MatmulCall> MatmulCall::make(const MatmulProblem& problem) {
  std::unique_ptr<MatmulCall> call(new MatmulCall(problem));
  return call->choose() ? std::move(call) : nullptr;
}

}  // namespace pelton::backend::cuda
