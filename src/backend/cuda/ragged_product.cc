// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/ragged_product.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "backend/cuda/own/compact_rows.h"

namespace pelton::backend::cuda {
namespace {

constexpr int64_t kLeastColumns = 512, kStretchBytes = 80 << 20, kRowsOfATile = 128;

int64_t element_bytes(DType t) {
  return bits(t) / 8;
}
int64_t padded(int64_t columns, DType t) {
  const int64_t unit = 16 / element_bytes(t);
  return (columns + unit - 1) / unit * unit;
}

// [k, n] with rows of `pitch` elements, zeros behind each.
DeviceBuffer with_pitch(const Tensor& matrix, const MatmulProblem& p, int64_t pitch) {
  const int64_t from = p.n * element_bytes(p.in), to = pitch * element_bytes(p.in);
  std::vector<std::byte> rows(static_cast<size_t>(p.k * to));
  for (int64_t r = 0; r < p.k; ++r)
    std::memcpy(rows.data() + r * to, static_cast<const std::byte*>(matrix.data()) + r * from,
                static_cast<size_t>(from));
  return upload(rows.data(), p.k * to, "a matrix with longer rows");
}

}  // namespace

std::unique_ptr<RaggedProduct> RaggedProduct::make(const MatmulProblem& problem, const Tensor& b) {
  const MatmulProblem& p = problem;
  if (p.n < kLeastColumns || p.batch != 1 || p.residual || p.in == DType::f64) return {};
  const int64_t b_pitch = padded(p.n, p.in), d_pitch = padded(p.n, p.out);
  const bool longer_b = !p.transpose_b && b_pitch != p.n;
  const bool longer_d = p.m > 1 && d_pitch != p.n && !p.transpose_a;
  if (longer_b ? !b.defined() : !longer_d) return {};
  std::unique_ptr<RaggedProduct> r(new RaggedProduct(p));
  if (longer_b) {
    r->p_.pitch_b = b_pitch;
    r->b_ = shared_packed(b, cat("rows of ", b_pitch), [&] { return with_pitch(b, p, b_pitch); });
  }
  MatmulProblem part = r->p_;
  if (longer_d) {
    r->p_.pitch_d = part.pitch_d = d_pitch;
    const int64_t fitting = kStretchBytes / (d_pitch * element_bytes(p.out)) / kRowsOfATile * kRowsOfATile;
    part.m = r->stretch_ = std::min(p.m, std::max(kRowsOfATile, fitting));
    if (part.m * d_pitch > std::numeric_limits<int32_t>::max()) return {};
  } else {
    r->stretch_ = p.m;
  }
  r->call_ = MatmulCall::make(part);
  if (!r->call_) return {};
  if (p.m % r->stretch_ != 0) {
    part.m = p.m % r->stretch_;
    r->last_ = MatmulCall::make(part);
    if (!r->last_) return {};
  }
  return r;
}

int64_t RaggedProduct::workspace_bytes() const {
  const int64_t most = std::max(call_->workspace_bytes(), last_ ? last_->workspace_bytes() : 0);
  return (most + 255) / 256 * 256;
}

int64_t RaggedProduct::scratch_bytes() const {
  return workspace_bytes() + stretch_ * p_.pitch_d * element_bytes(p_.out);
}

void RaggedProduct::run(const void* a, const void* b, void* d, const void* bias, void* scratch,
                        cudaStream_t stream) const {
  if (b_) b = b_->get();
  auto* const wide = static_cast<std::byte*>(scratch) + workspace_bytes();
  for (int64_t first = 0; first < p_.m; first += stretch_) {
    const int64_t rows = std::min(stretch_, p_.m - first);
    const MatmulCall& call = rows < stretch_ ? *last_ : *call_;
    const std::byte* const from = static_cast<const std::byte*>(a) + first * p_.k * element_bytes(p_.in);
    std::byte* const to = static_cast<std::byte*>(d) + first * p_.n * element_bytes(p_.out);
    call.run(from, b, nullptr, p_.pitch_d ? wide : to, bias, scratch, stream);
    if (!p_.pitch_d) continue;
    PELTON_CUDA(compact_rows({.x = wide,
                              .y = to,
                              .bytes = static_cast<int>(element_bytes(p_.out)),
                              .rows = rows,
                              .columns = p_.n,
                              .pitch = p_.pitch_d},
                             stream));
  }
}

}  // namespace pelton::backend::cuda
