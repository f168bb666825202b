// SPDX-License-Identifier: Apache-2.0
// A read-only range of bytes and what keeps it alive. Tensor data travels through the server as blobs, so
// that a request body, a shared-memory region or an engine's output is never copied on its way.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
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

// Uninitialised memory on a 64-byte boundary.
inline std::shared_ptr<char> allocate_bytes(size_t size) {
  void* p = std::aligned_alloc(64, (size + 64) & ~size_t{63});
  if (!p) throw std::bad_alloc();
  return {static_cast<char*>(p), [](char* q) { std::free(q); }};
}

}  // namespace pelton::serve
