// SPDX-License-Identifier: Apache-2.0
// Weights in the order in which a kernel wants them. Kernels of one constant share them while one of them
// lives, and a plan file may bring them (section `packed`), so that loading it re-orders nothing.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "runtime/weight_store.h"
#include "tensor/tensor.h"

namespace pelton::runtime {

// A constant, the name of an order (it says everything that the bytes depend on besides the constant: layout,
// library, version) and the bytes.
struct Packed {
  Tensor source;
  std::string order;
  std::shared_ptr<const Tensor> bytes;
  bool alone = false;  // no kernel reads `source` itself
};

// One a process; any thread.
class PackedWeights {
 public:
  static PackedWeights& instance();

  // `source` in the named order: what a plan brought or a kernel still holds, else `bytes` fresh ones that
  // `make` fills. Two threads may then both make them, which costs time only.
  std::shared_ptr<const Tensor> get(const Tensor& source, const std::string& order, int64_t bytes,
                                    FunctionRef<void(void*)> make);
  // What a plan brings; known for as long as the constant and the owner of `packed` live.
  void add(const std::shared_ptr<const Blob>& source, std::string order, const Blob& packed);

  // The implementation looks at constants when it is prepared through get() only, or calls
  // LateWeights::ready().
  void declare(std::string_view implementation);
  bool only_packs(std::string_view implementation);

  size_t known();  // forms that are remembered, some of which may be gone already

  // From record() to take() everything that get() yields is kept.
  void record();
  std::vector<Packed> take();

 private:
  // `alive` holds both the constant, so that its address cannot come to mean other bytes, and the packed
  // ones; of what a plan brings, the second only.
  struct Entry {
    std::string order;
    std::span<const std::byte> bytes;
    std::weak_ptr<const void> alive;
    std::weak_ptr<const Blob> source;
    bool brought = false;
    bool gone() const { return alive.expired() || (brought && source.expired()); }
  };
  void remember(const void* source, Entry entry);
  std::shared_ptr<const Tensor> find(const void* source, std::string_view order, int64_t bytes);

  std::mutex mutex_;
  std::unordered_multimap<const void*, Entry> entries_;  // by address of the constant; guarded by mutex_
  size_t most_ = 256;             // entries before those that are gone are looked for; likewise
  bool recording_ = false;        // likewise
  std::vector<Packed> recorded_;  // likewise
  std::set<std::string, std::less<>> declared_;  // likewise
};

}  // namespace pelton::runtime
