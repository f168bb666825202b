// SPDX-License-Identifier: Apache-2.0
#include "serve/loadtest/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/cat.h"
#include "base/file.h"

namespace pelton::serve {

LoadRegion::LoadRegion(size_t size) : size_(size) {
  static std::atomic<int> count{0};
  name_ = cat("loadtest-", ::getpid(), "-", count++);
  fd_ = Fd(::shm_open(key().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd_.get() < 0) fail_errno(errno, "make shared memory", key());
  // Reserved at once: a full memory file system is an error here, not a fault later.
  if (const int error = ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(size))) {
    ::shm_unlink(key().c_str());
    fail_errno(error, "reserve shared memory", key());
  }
  void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (p == MAP_FAILED) {
    const int error = errno;
    ::shm_unlink(key().c_str());
    fail_errno(error, "map shared memory", key());
  }
  data_ = static_cast<char*>(p);
}

LoadRegion::~LoadRegion() {
  ::munmap(data_, size_);
  ::shm_unlink(key().c_str());
}

}  // namespace pelton::serve
