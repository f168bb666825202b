// SPDX-License-Identifier: Apache-2.0
// What the host side of our own kernels shares.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/own/epilogue.h"
#include "backend/kernel.h"
#include "backend/refuse.h"
#include "base/cat.h"

namespace pelton::backend::cuda {

inline std::optional<Elem> elem_of(DType t) {
  if (t == DType::f32) return Elem::f32;
  if (t == DType::f16) return Elem::f16;
  if (t == DType::bf16) return Elem::bf16;
  return {};
}
// Of a type that `refuse` has let through.
inline Elem elem(DType t) {
  const std::optional<Elem> e = elem_of(t);
  PELTON_CHECK(e, name(t));
  return *e;
}
inline cudaStream_t stream_of(const RunArgs& args) {
  return static_cast<cudaStream_t>(args.stream);
}
inline int multiprocessors(const device::Target& target) {
  return target.multiprocessors > 0 ? target.multiprocessors : 132;
}
inline const ir::Type& input_type(const ir::Graph& g, ir::NodeId n, size_t i) {
  return g.type(g[n].inputs[i]);
}
inline const ir::Type& output_type(const ir::Graph& g, ir::NodeId n, size_t i = 0) {
  return g.type(g[n].outputs[i]);
}
inline bool is_channels_last(const ir::Layout& l) {
  return l.kind == ir::Layout::Kind::channels_last;
}
using Packed = std::shared_ptr<const DeviceBuffer>;

// A kernel from a callable void(const RunArgs&), with what it keeps alive.
struct KernelNeeds {
  int64_t scratch_bytes = 0;
  std::vector<Packed> packed;
  std::vector<size_t> unread;  // inputs that the kernel has in packed form
};
template <class F>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(F f, KernelNeeds needs) : f_(std::move(f)), needs_(std::move(needs)) {}
  int64_t scratch_bytes() const override { return needs_.scratch_bytes; }
  int64_t packed_bytes() const override {
    int64_t sum = 0;
    for (const Packed& p : needs_.packed) sum += p->bytes();
    return sum;
  }
  bool reads(size_t input) const override {
    for (size_t i : needs_.unread)
      if (i == input) return false;
    return true;
  }
  void run(const RunArgs& args) const override { f_(args); }

 private:
  F f_;
  KernelNeeds needs_;
};
template <class F>
std::unique_ptr<Kernel> make_kernel(F f, KernelNeeds needs = {}) {
  return std::make_unique<FunctionKernel<F>>(std::move(f), std::move(needs));
}
// For results without elements.
inline std::unique_ptr<Kernel> nothing() {
  return make_kernel([](const RunArgs&) {});
}

}  // namespace pelton::backend::cuda
