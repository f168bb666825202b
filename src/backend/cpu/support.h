// SPDX-License-Identifier: Apache-2.0
// Small helpers of the CPU implementations.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/kernel.h"
#include "backend/refuse.h"
#include "base/thread_pool.h"

namespace pelton::backend::cpu {

// A kernel from a callable void(const RunArgs&).
template <class F>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(F f, int64_t scratch_bytes, int64_t packed_bytes)
      : f_(std::move(f)), scratch_bytes_(scratch_bytes), packed_bytes_(packed_bytes) {}
  int64_t scratch_bytes() const override { return scratch_bytes_; }
  int64_t packed_bytes() const override { return packed_bytes_; }
  void run(const RunArgs& args) const override { f_(args); }

 private:
  F f_;
  int64_t scratch_bytes_, packed_bytes_;
};
template <class F>
std::unique_ptr<Kernel> make_kernel(F f, int64_t scratch_bytes = 0, int64_t packed_bytes = 0) {
  return std::make_unique<FunctionKernel<F>>(std::move(f), scratch_bytes, packed_bytes);
}

// Items a chunk of parallel_for should hold so that it does about 50 us of work at `work` elementary
// operations an item; a function of sizes alone, so results do not depend on the thread count.
inline int64_t grain_for(int64_t items, int64_t work) {
  constexpr int64_t kWork = int64_t{1} << 16;
  int64_t grain = std::max<int64_t>(1, kWork / std::max<int64_t>(1, work));
  // At most 256 chunks, so that hand-out costs stay small.
  return std::max(grain, (items + 255) / 256);
}

constexpr int64_t align64(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}
inline std::byte* offset(void* base, int64_t bytes) {
  return static_cast<std::byte*>(base) + bytes;
}
inline const std::byte* offset(const void* base, int64_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}

inline DType input_dtype(const ir::Graph& g, ir::NodeId n, size_t i) {
  return g.type(g[n].inputs[i]).dtype;
}
inline DType output_dtype(const ir::Graph& g, ir::NodeId n, size_t i = 0) {
  return g.type(g[n].outputs[i]).dtype;
}
inline bool is_real(DType t) {
  return t == DType::f32 || t == DType::f16 || t == DType::bf16;
}
}  // namespace pelton::backend::cpu
