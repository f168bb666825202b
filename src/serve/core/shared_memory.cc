// SPDX-License-Identifier: Apache-2.0
#include "serve/core/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace pelton::serve {
namespace {

constexpr size_t kMaxRegions = 4096;
constexpr size_t kMappedBytes = 16 << 10;  // smaller inputs are copied: cheaper than the pages' faults

// Whether the bytes, an input of the same region as it came, would change while they are written to `offset`.
bool written_over(const Blob& b, const GuardedMap& map, size_t offset) {
  const auto from = reinterpret_cast<uintptr_t>(b.data), begin = reinterpret_cast<uintptr_t>(map.data());
  if (from < begin || from - begin >= map.size()) return false;
  const size_t at = from - begin;
  return at != offset && (at < offset ? offset - at : at - offset) < b.size;
}

}  // namespace

void SharedMemory::require() const {
  if (!allowed_)
    fail(ErrorCode::unsupported_op, "shared memory is off", "",
         "start the server with --allow-client-shm=true, or send tensors in the request");
}

void SharedMemory::add(const std::string& name, const std::string& key, uint64_t offset, uint64_t size) {
  require();
  if (name.empty()) fail(ErrorCode::bad_name, "a shared memory region needs a name");
  const std::string_view bare = std::string_view(key).substr(key.starts_with("/") ? 1 : 0);
  if (bare.empty() || bare.size() > 200 || bare.find('/') != bare.npos || bare.find('\0') != bare.npos ||
      bare[0] == '.' || bare.starts_with("pelton"))
    fail(ErrorCode::bad_name, cat("the key of shared memory region '", name, "' is unusable"));
  uint64_t end = 0;
  if (size == 0 || __builtin_add_overflow(offset, size, &end) || end > INT64_MAX)
    fail(ErrorCode::bad_shape,
         cat("shared memory region '", name, "' has unusable offset ", offset, " and size ", size));
  auto region = std::make_shared<Region>();
  region->name = name;
  region->key = key;
  region->offset = offset;
  region->size = size;
  region->fd = Fd(::shm_open(cat("/", bare).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0));
  if (region->fd.get() < 0)
    fail(errno == ENOENT ? ErrorCode::not_found : ErrorCode::bad_name,
         cat("cannot open the shared memory of region '", name, "': ", std::strerror(errno)));
  struct stat st {};
  if (::fstat(region->fd.get(), &st) != 0 || static_cast<uint64_t>(st.st_size) < end)
    fail(ErrorCode::bad_shape,
         cat("shared memory region '", name, "' ends at byte ", end, ", its segment has ", st.st_size));
  if (size >= kMappedBytes) region->map = GuardedMap::make(region->fd.get(), offset, size);
  insert(std::move(region));
}

void SharedMemory::add_gpu(const std::string& name, std::string_view handle, int64_t device, uint64_t size) {
  require();
  if (name.empty()) fail(ErrorCode::bad_name, "a shared memory region needs a name");
  if (size == 0 || size > INT64_MAX)
    fail(ErrorCode::bad_shape, cat("shared memory region '", name, "' has the unusable size ", size));
  if (!open_gpu_) fail(ErrorCode::unsupported_op, "CUDA shared memory is not supported by this server");
  auto region = std::make_shared<Region>();
  region->name = name;
  region->size = size;
  region->device = device;
  region->gpu = open_gpu_(handle, device, size);
  insert(std::move(region));
}

void SharedMemory::insert(std::shared_ptr<const Region> region) {
  const std::string name = region->name;
  std::lock_guard lock(mutex_);
  if (regions_.size() >= kMaxRegions)
    fail(ErrorCode::limit, cat("more than ", kMaxRegions, " shared memory regions"));
  if (!regions_.emplace(name, std::move(region)).second)
    fail(ErrorCode::bad_name, cat("shared memory region '", name, "' is already registered"));
}

void SharedMemory::remove(const std::string& name, bool of_gpus) {
  require();
  std::shared_ptr<const Region> gone;  // closed outside the lock
  std::lock_guard lock(mutex_);
  if (auto it = regions_.find(name); it != regions_.end() && (it->second->gpu != nullptr) == of_gpus) {
    gone = std::move(it->second);
    regions_.erase(it);
  }
}

void SharedMemory::remove_all(bool of_gpus) {
  require();
  decltype(regions_) gone;  // closed outside the lock
  std::lock_guard lock(mutex_);
  for (auto it = regions_.begin(); it != regions_.end();) {
    const auto here = it++;
    if ((here->second->gpu != nullptr) == of_gpus) gone.insert(regions_.extract(here));
  }
}

std::vector<std::shared_ptr<const SharedMemory::Region>> SharedMemory::list(const std::string& name,
                                                                            bool of_gpus) const {
  require();
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const Region>> out;
  for (const auto& [n, r] : regions_)
    if ((name.empty() || n == name) && (r->gpu != nullptr) == of_gpus) out.push_back(r);
  if (!name.empty() && out.empty()) fail(ErrorCode::not_found, cat("no shared memory region '", name, "'"));
  return out;
}

std::shared_ptr<const SharedMemory::Region> SharedMemory::find(const std::string& name, uint64_t offset,
                                                               uint64_t size) const {
  require();
  std::shared_ptr<const Region> r;
  {
    std::lock_guard lock(mutex_);
    if (auto it = regions_.find(name); it != regions_.end()) r = it->second;
  }
  if (!r) fail(ErrorCode::bad_name, cat("no shared memory region '", name, "'"));
  if (offset > r->size || size > r->size - offset)
    fail(ErrorCode::bad_shape, cat("bytes ", offset, " to ", offset, "+", size,
                                   " lie outside shared memory region '", name, "' of ", r->size, " bytes"));
  return r;
}

Blob SharedMemory::read(const std::string& name, uint64_t offset, uint64_t size, DType dtype) const {
  const auto r = find(name, offset, size);
  // What a kernel may take for an index is copied: a client could change it between the check and the use.
  if (r->map && size >= kMappedBytes && is_float(dtype)) {
    struct stat st {};
    if (::fstat(r->fd.get(), &st) != 0 || static_cast<uint64_t>(st.st_size) < r->offset + offset + size)
      fail(ErrorCode::bad_shape, cat("shared memory region '", name, "' was truncated"));
    return {r->map->data() + offset, size, r};
  }
  auto memory = allocate_leased(gate_, size);
  if (!memory) fail(ErrorCode::busy, "the server holds as many request bytes as it may", "", "retry later");
  if (r->gpu) r->gpu->read(memory.get(), offset, size);
  for (size_t at = r->gpu ? size : 0; at < size;) {
    const ssize_t n =
        ::pread(r->fd.get(), memory.get() + at, size - at, static_cast<off_t>(r->offset + offset + at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(ErrorCode::bad_shape, cat("shared memory region '", name, "' was truncated"));
    at += static_cast<size_t>(n);
  }
  char* const data = memory.get();
  return {data, size, std::move(memory)};
}

std::vector<Blob> SharedMemory::mapped_inputs(const Request& request) const {
  std::vector<Blob> out;
  if (!allowed_) return out;
  for (const TensorValue& t : request.inputs)
    if (t.data.size >= kMappedBytes && GuardedMap::covers(t.data.data)) out.push_back(t.data);
  return out;
}

void SharedMemory::store(Response& response, const std::vector<RequestedOutput>& outputs,
                         const std::vector<Blob>& mapped) const {
  for (const Blob& b : mapped) {
    const auto& region = *static_cast<const Region*>(b.owner.get());  // as read() made it
    struct stat st {};
    if (GuardedMap::damaged_at(b.data) || ::fstat(region.fd.get(), &st) != 0 ||
        static_cast<uint64_t>(st.st_size) < region.offset + region.size)
      fail(ErrorCode::bad_shape,
           cat("shared memory region '", region.name, "' was truncated while its request ran"));
  }
  for (size_t i = 0; i < outputs.size() && i < response.outputs.size(); ++i) {
    const RequestedOutput& o = outputs[i];
    TensorValue& t = response.outputs[i];
    if (o.region.empty()) continue;
    if (t.data.size > o.region_size)
      fail(ErrorCode::bad_shape,
           cat("output '", t.name, "' has ", t.data.size, " bytes, its place in shared memory region '",
               o.region, "' ", o.region_size));
    const auto r = find(o.region, o.region_offset, o.region_size);
    struct stat st {};
    if (!r->gpu &&
        (::fstat(r->fd.get(), &st) != 0 || static_cast<uint64_t>(st.st_size) < r->offset + r->size))
      fail(ErrorCode::bad_shape, cat("shared memory region '", o.region, "' was truncated"));
    if (r->map && written_over(t.data, *r->map, o.region_offset)) {
      auto copy = allocate_bytes(t.data.size);
      std::memcpy(copy.get(), t.data.data, t.data.size);
      t.data = {copy.get(), t.data.size, copy};
    }
    if (r->gpu && t.data.size) r->gpu->write(t.data.data, o.region_offset, t.data.size);
    for (size_t at = r->gpu ? t.data.size : 0; at < t.data.size;) {
      const ssize_t n = ::pwrite(r->fd.get(), t.data.data + at, t.data.size - at,
                                 static_cast<off_t>(r->offset + o.region_offset + at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        fail(ErrorCode::io,
             cat("cannot write to shared memory region '", o.region, "': ", std::strerror(errno)));
      at += static_cast<size_t>(n);
    }
    t.stored_bytes = t.data.size;
    t.data = {};
  }
}

}  // namespace pelton::serve
