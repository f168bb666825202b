// SPDX-License-Identifier: Apache-2.0
// Memory that only grows; what it held is lost then.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace pelton::backend::cuda {

template <cudaError_t (*Allocate)(void**, size_t), cudaError_t (*Free)(void*)>
class Growing {
 public:
  Growing() = default;
  Growing(const Growing&) = delete;
  ~Growing() { (void)Free(at_); }
  // Null where there is none left.
  uint8_t* need(size_t bytes) {
    if (bytes <= bytes_) return static_cast<uint8_t*>(at_);
    (void)Free(std::exchange(at_, nullptr));
    bytes_ = 0;
    if (Allocate(&at_, bytes) != cudaSuccess) {
      (void)cudaGetLastError();
      return static_cast<uint8_t*>(at_ = nullptr);
    }
    bytes_ = bytes;
    return static_cast<uint8_t*>(at_);
  }

 private:
  void* at_ = nullptr;
  size_t bytes_ = 0;
};
inline cudaError_t allocate_plain(void** at, size_t bytes) {
  return cudaMalloc(at, bytes);
}
inline cudaError_t allocate_pinned(void** at, size_t bytes) {
  return cudaHostAlloc(at, bytes, cudaHostAllocDefault);
}
using GrowingMemory = Growing<allocate_plain, cudaFree>;
using GrowingPinned = Growing<allocate_pinned, cudaFreeHost>;

}  // namespace pelton::backend::cuda
