// SPDX-License-Identifier: Apache-2.0
// Regions of POSIX shared memory that clients registered for inputs and outputs. Off unless the server allows
// it. Inputs are read in place through a guarded mapping; small ones and BYTES, whose layout is checked
// before it is used, are copied first, so that nobody can change them in between. Outputs are written through
// the descriptor. A client that truncates its region gets an error instead of ending the server.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serve/core/guarded_map.h"
#include "serve/core/memory_gate.h"
#include "serve/core/model_dir.h"
#include "serve/core/request.h"

namespace pelton::serve {

class SharedMemory {
 public:
  SharedMemory(bool allowed, MemoryGate& gate) : allowed_(allowed), gate_(gate) {}

  struct Region {
    std::string name, key;
    size_t offset = 0, size = 0;
    Fd fd;
    std::shared_ptr<const GuardedMap> map;  // null: inputs are copied
  };

  bool allowed() const { return allowed_; }
  // Throws unsupported_op while client shared memory is off; every other call below does, too.
  void require() const;
  // bad_name if the name is taken or the key unusable, not_found if there is no such segment, bad_shape if
  // the segment is smaller than offset + size.
  void add(const std::string& name, const std::string& key, uint64_t offset, uint64_t size);
  void remove(const std::string& name);  // an unknown name is no error
  void remove_all();
  // One region, or all for an empty name; not_found for an unknown name.
  std::vector<std::shared_ptr<const Region>> list(const std::string& name) const;

  // Bytes of an input of that type: those of the region itself, or a copy.
  Blob read(const std::string& name, uint64_t offset, uint64_t size, DType dtype) const;
  // The inputs that lie in a region itself.
  std::vector<Blob> mapped_inputs(const Request& request) const;
  // Writes outputs that asked for a region and leaves them without data. bad_shape if an input that the
  // response was computed from (`mapped`) was cut off meanwhile.
  void store(Response& response, const std::vector<RequestedOutput>& outputs,
             const std::vector<Blob>& mapped) const;

 private:
  std::shared_ptr<const Region> find(const std::string& name, uint64_t offset, uint64_t size) const;

  const bool allowed_;
  MemoryGate& gate_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Region>> regions_;
};

}  // namespace pelton::serve
