// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/worker_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace pelton::serve {

static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

WorkerRing::WorkerRing() : file_(::memfd_create("pelton_worker", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  const size_t size = kPage + kRingBytes;
  if (file_.get() < 0 || ::ftruncate(file_.get(), static_cast<off_t>(size)) != 0 ||
      ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail_errno(errno, "make memory for", "a model's process");
  void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (p == MAP_FAILED) fail_errno(errno, "map memory for", "a model's process");
  memory_ = static_cast<char*>(p);
}

WorkerRing::~WorkerRing() {
  ::munmap(memory_, kPage + kRingBytes);
}

void WorkerRing::copy(void* to, size_t size) const {
  const size_t at = read_ % kRingBytes, first = std::min(size, kRingBytes - at);
  std::memcpy(to, memory_ + kPage + at, first);
  std::memcpy(static_cast<char*>(to) + first, memory_ + kPage, size - first);
}

size_t WorkerRing::peek(void* to, size_t size) const {
  const uint64_t there = word(0).load(std::memory_order_acquire) - read_;
  // Frames come whole, so a part of one is no reason to wait.
  if (there > kRingBytes || (there > 0 && there < size))
    fail(ErrorCode::bad_format, "the model's process has damaged the memory it answers in");
  if (there == 0) return 0;
  copy(to, size);
  return static_cast<size_t>(there);
}

void WorkerRing::read(void* to, size_t size) {
  copy(to, size);
  skip(size);
}

void WorkerRing::skip(size_t size) {
  read_ += size;
  word(1).store(read_, std::memory_order_release);
}

bool WorkerRing::may_sleep() {
  word(3).store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (empty()) return true;
  awake();
  return false;
}

}  // namespace pelton::serve
