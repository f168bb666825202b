// SPDX-License-Identifier: Apache-2.0
// Weights of this process by content: plans that hold equal blobs share one copy of the bytes.
#pragma once

#include <memory>
#include <span>

#include "base/hash.h"

namespace pelton::runtime {

// Bytes and what keeps them alive.
struct Blob {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

class WeightStore {
 public:
  static WeightStore& instance();
  // The blob of this content that is alive already, or `blob`, which is then known under the digest for as
  // long as someone holds it. The digest is trusted: callers have checked the bytes. Any thread.
  std::shared_ptr<const Blob> share(const Digest& digest, Blob blob);
  int64_t bytes() const;  // of the blobs alive

 private:
  WeightStore();
  ~WeightStore();
  struct Table;
  std::unique_ptr<Table> table_;
};

}  // namespace pelton::runtime
