// SPDX-License-Identifier: Apache-2.0
// A read-only range of bytes and what keeps it alive. Tensor data travels through the server as blobs, so
// that a request body, a shared-memory region or an engine's output is never copied on its way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace pelton::serve {

struct Blob {
  const char* data = nullptr;
  size_t size = 0;
  std::shared_ptr<const void> owner;

  static Blob from(std::string text) {
    auto s = std::make_shared<const std::string>(std::move(text));
    return {s->data(), s->size(), s};
  }
  Blob slice(size_t offset, size_t length) const { return {data + offset, length, owner}; }
};

// A value's own bytes.
template <class T>
std::string bytes_of(T v) {
  return std::string(reinterpret_cast<const char*>(&v), sizeof v);
}

// Uninitialised memory on a 64-byte boundary.
inline std::shared_ptr<char> allocate_bytes(size_t size) {
  auto memory = std::make_shared_for_overwrite<char[]>(size + 64);
  char* const p = memory.get();
  return {std::move(memory), p + (64 - reinterpret_cast<uintptr_t>(p) % 64) % 64};
}

}  // namespace pelton::serve
