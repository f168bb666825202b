// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/memory.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "base/hash.h"

namespace pelton::backend::cuda {

namespace {

struct Counted {
  std::mutex mutex;
  std::map<void*, int64_t> sizes;
  int64_t now = 0, peak = 0;
};
Counted& counted() {
  static auto* const counts = new Counted;
  return *counts;
}

}  // namespace

void* allocate_device(int64_t bytes, std::string_view what) {
  void* at = nullptr;
  cudaError_t error = cudaMalloc(&at, static_cast<size_t>(bytes));
  if (error != cudaSuccess) {
    size_t free = 0, total = 0;
    if (error == cudaErrorMemoryAllocation) (void)cudaMemGetInfo(&free, &total);
    fail_cuda(error, "cudaMalloc",
              cat("no ", bytes, " bytes of GPU memory for ", what, " (", free, " of ", total, " are free)"));
  }
  Counted& c = counted();
  std::lock_guard lock(c.mutex);
  c.sizes[at] = bytes;
  c.now += bytes;
  c.peak = std::max(c.peak, c.now);
  return at;
}

void free_device(void* memory) noexcept {
  {
    // First: once it is free another thread may be given the same address.
    Counted& c = counted();
    std::lock_guard lock(c.mutex);
    if (auto it = c.sizes.find(memory); it != c.sizes.end()) {
      c.now -= it->second;
      c.sizes.erase(it);
    }
  }
  (void)cudaFree(memory);
}

int64_t peak_device_bytes() {
  Counted& c = counted();
  std::lock_guard lock(c.mutex);
  return c.peak;
}

DeviceBuffer::DeviceBuffer(int64_t bytes, std::string_view what) : bytes_(bytes) {
  if (bytes > 0) memory_.reset(allocate_device(bytes, what));
}

DeviceBuffer upload(const void* data, int64_t bytes, std::string_view what) {
  DeviceBuffer out(bytes, what);
  if (bytes > 0) PELTON_CUDA(cudaMemcpy(out.get(), data, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
  return out;
}

std::shared_ptr<const DeviceBuffer> shared_packed(const Tensor& constant, std::string_view form,
                                                  const std::function<DeviceBuffer()>& make) {
  using Key = std::tuple<int, Digest, std::string>;
  static auto* const known = new std::map<Key, std::weak_ptr<const DeviceBuffer>>;
  static std::mutex mutex;
  int device = 0;
  PELTON_CUDA(cudaGetDevice(&device));
  Digest digest = sha256(
      std::span(static_cast<const std::byte*>(constant.data()), static_cast<size_t>(constant.bytes())));
  Key key(device, digest, cat(constant.str(), " ", form));
  {
    std::lock_guard lock(mutex);
    if (auto alive = (*known)[key].lock()) return alive;
  }
  auto made = std::make_shared<const DeviceBuffer>(make());
  std::lock_guard lock(mutex);
  std::weak_ptr<const DeviceBuffer>& entry = (*known)[key];
  if (auto alive = entry.lock()) return alive;  // another thread was faster
  entry = made;
  return made;
}

}  // namespace pelton::backend::cuda
