// SPDX-License-Identifier: Apache-2.0
// Regions of POSIX shared memory that clients registered for inputs and outputs. Off unless the server allows
// it. Inputs are read in place through a guarded mapping; small ones, BYTES, whose layout is checked
// before it is used, and integers, which kernels check as indices, are copied first, so that nobody can
// change them in between. Outputs are written through the descriptor. A client that truncates its region gets
// an error instead of ending the server.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serve/core/gpu_region.h"
#include "serve/core/guarded_map.h"
#include "serve/core/memory_gate.h"
#include "serve/core/model_dir.h"
#include "serve/core/request.h"

namespace pelton::serve {

class SharedMemory {
 public:
  SharedMemory(bool allowed, MemoryGate& gate, OpenGpuRegion open_gpu = {})
      : allowed_(allowed), gate_(gate), open_gpu_(std::move(open_gpu)) {}

  struct Region {
    std::string name, key;
    size_t offset = 0, size = 0;
    Fd fd;
    std::shared_ptr<const GuardedMap> map;  // null: inputs are copied
    std::shared_ptr<const GpuRegion> gpu;   // not null: memory of a GPU, copied both ways
    int64_t device = 0;                     // of `gpu`
  };

  bool allowed() const { return allowed_; }
  MemoryGate& gate() const { return gate_; }  // of request bytes
  bool has_gpus() const { return open_gpu_ != nullptr; }
  // Throws unsupported_op while client shared memory is off; every other call below does, too.
  void require() const;
  // bad_name if the name is taken or the key unusable, not_found if there is no such segment, bad_shape if
  // the segment is smaller than offset + size.
  void add(const std::string& name, const std::string& key, uint64_t offset, uint64_t size);
  // Memory of a GPU by its handle (OpenGpuRegion). Names are shared with the regions of host memory.
  void add_gpu(const std::string& name, std::string_view handle, int64_t device, uint64_t size);
  // Of one kind: host memory or memory of GPUs.
  void remove(const std::string& name, bool of_gpus);  // an unknown name is no error
  void remove_all(bool of_gpus);
  // One region, or all for an empty name; not_found for an unknown name.
  std::vector<std::shared_ptr<const Region>> list(const std::string& name, bool of_gpus) const;

  // Bytes of an input of that type: those of the region itself, or a copy.
  Blob read(const std::string& name, uint64_t offset, uint64_t size, DType dtype) const;
  // The inputs that lie in a region itself.
  std::vector<Blob> mapped_inputs(const Request& request) const;
  // Writes outputs that asked for a region and leaves them without data. bad_shape if an input that the
  // response was computed from (`mapped`) was cut off meanwhile.
  void store(Response& response, const std::vector<RequestedOutput>& outputs,
             const std::vector<Blob>& mapped) const;

 private:
  void insert(std::shared_ptr<const Region> region);
  std::shared_ptr<const Region> find(const std::string& name, uint64_t offset, uint64_t size) const;

  const bool allowed_;
  MemoryGate& gate_;
  const OpenGpuRegion open_gpu_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Region>> regions_;
};

}  // namespace pelton::serve
