// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_weights.h"

#include <map>
#include <mutex>
#include <tuple>

#include "base/file.h"

namespace pelton::runtime {
namespace {

constexpr int64_t kForgottenBytes = 64 << 10;

// A copy on a device, and the tensor whose address names it: while the copy lives, nothing else can lie
// there.
struct Entry {
  device::Memory memory;
  Tensor tensor;
};

}  // namespace

std::shared_ptr<const device::Memory> share_on_device(const std::shared_ptr<device::Device>& device,
                                                      const Tensor& tensor) {
  using Key = std::tuple<const device::Device*, const void*, int64_t>;
  static auto* const known = new std::map<Key, std::weak_ptr<const Entry>>;
  static std::mutex mutex;
  Key key(device.get(), tensor.data(), tensor.bytes());
  auto memory_of = [](std::shared_ptr<const Entry> entry) {
    const device::Memory* memory = &entry->memory;
    return std::shared_ptr<const device::Memory>(std::move(entry), memory);
  };
  std::lock_guard lock(mutex);
  if (auto alive = (*known)[key].lock()) return memory_of(std::move(alive));
  device->activate();
  auto entry = std::make_shared<Entry>();
  entry->tensor = tensor;
  entry->memory = device::Memory(device, tensor.bytes(), cat("the weight ", tensor.str()));
  std::unique_ptr<device::Stream> stream = device->make_stream();
  stream->upload(entry->memory.get(), tensor.data(), tensor.bytes());
  stream->synchronize();
  // Mapped weights are read from the file again should anyone on the host want them.
  if (tensor.bytes() >= kForgottenBytes)
    forget_pages({static_cast<const std::byte*>(tensor.data()), static_cast<size_t>(tensor.bytes())});
  (*known)[key] = entry;
  std::erase_if(*known, [](const auto& item) { return item.second.expired(); });
  return memory_of(std::move(entry));
}

}  // namespace pelton::runtime
