// SPDX-License-Identifier: Apache-2.0
#include "serve/core/model_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"

namespace pelton::serve {
namespace {

ErrorCode code_of(int error) {
  if (error == ENOENT || error == ENOTDIR) return ErrorCode::not_found;
  return ErrorCode::io;
}

// Kernels without openat2: walk the components and follow no link at all.
int open_walking(int dir, std::string_view relative, int flags) {
  Fd current(::dup(dir));
  while (true) {
    const size_t slash = relative.find('/');
    const std::string part(relative.substr(0, slash));
    const bool last = slash == relative.npos;
    if (part == "..") return errno = EXDEV, -1;
    if (!part.empty() && part != ".") {
      int fd = ::openat(current.get(), part.c_str(),
                        (last ? flags : O_RDONLY | O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC);
      if (fd < 0 || last) return fd;
      current = Fd(fd);
    } else if (last) {
      return ::openat(current.get(), ".", flags | O_CLOEXEC);
    }
    relative.remove_prefix(slash + 1);
  }
}

int open_beneath(int dir, std::string_view relative, int flags) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  const std::string path(relative.empty() ? "." : relative);
  int fd = static_cast<int>(::syscall(SYS_openat2, dir, path.c_str(), &how, sizeof how));
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return fd;
  return open_walking(dir, relative, flags);
}

struct DirCloser {
  void operator()(DIR* d) const { ::closedir(d); }
};
using DirHandle = std::unique_ptr<DIR, DirCloser>;

DirHandle list(Fd fd) {
  int raw = ::dup(fd.get());
  DIR* d = raw >= 0 ? ::fdopendir(raw) : nullptr;
  if (!d && raw >= 0) ::close(raw);
  if (d) ::rewinddir(d);
  return DirHandle(d);
}

void mix(uint64_t& h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdull;
  h ^= h >> 32;
}

uint64_t hash_tree(int dir, int depth) {
  uint64_t sum = 0;  // order of readdir must not matter
  DirHandle d = list(Fd(::dup(dir)));
  if (!d) return 0;
  while (const dirent* e = ::readdir(d.get())) {
    if (!std::strcmp(e->d_name, ".") || !std::strcmp(e->d_name, "..")) continue;
    struct stat st {};
    if (::fstatat(dir, e->d_name, &st, 0) != 0) continue;
    uint64_t h = 1469598103934665603ull;
    for (const char* c = e->d_name; *c; ++c) mix(h, static_cast<unsigned char>(*c));
    mix(h, st.st_ino);
    if (S_ISDIR(st.st_mode)) {
      if (depth < 4)
        if (Fd sub(::openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)); sub.get() >= 0)
          mix(h, hash_tree(sub.get(), depth + 1));
    } else {
      mix(h, static_cast<uint64_t>(st.st_size));
      mix(h, static_cast<uint64_t>(st.st_mtim.tv_sec));
      mix(h, static_cast<uint64_t>(st.st_mtim.tv_nsec));
    }
    sum += h;
  }
  return sum;
}

}  // namespace

Fd& Fd::operator=(Fd&& o) noexcept {
  if (this != &o) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = o.fd_;
    o.fd_ = -1;
  }
  return *this;
}
Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

ModelDir::ModelDir(std::string path, bool uploaded)
    : path_(std::move(path)),
      uploaded_(uploaded),
      dir_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (dir_.get() < 0) {
    const int e = errno;
    fail(code_of(e), cat("cannot open the model folder: ", std::strerror(e)), path_);
  }
}

Fd ModelDir::open(std::string_view relative, int flags) const {
  if (!relative.empty() && relative[0] == '/')
    fail(ErrorCode::bad_name, cat("path '", relative, "' is absolute"), path_,
         "name it relative to the model's folder");
  int fd = open_beneath(dir_.get(), relative, flags);
  if (fd >= 0) return Fd(fd);
  const int e = errno;
  if (e == EXDEV || e == ELOOP)
    fail(ErrorCode::bad_name, cat("path '", relative, "' leaves the model's folder"), path_,
         "keep the model's files below its folder");
  fail(code_of(e), cat("cannot open '", relative, "': ", std::strerror(e)), path_);
}

bool ModelDir::exists(std::string_view relative) const {
  return Fd(open_beneath(dir_.get(), relative, O_PATH)).get() >= 0;
}

std::string ModelDir::read(std::string_view relative, size_t max_bytes) const {
  Fd fd = open(relative, O_RDONLY | O_NONBLOCK);
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode))
    fail(ErrorCode::io, cat("'", relative, "' is not a regular file"), path_);
  std::string out;
  char buffer[65536];
  for (;;) {
    ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorCode::io, cat("cannot read '", relative, "': ", std::strerror(errno)), path_);
    if (n == 0) return out;
    if (out.size() + static_cast<size_t>(n) > max_bytes)
      fail(ErrorCode::limit, cat("'", relative, "' is larger than ", max_bytes, " bytes"), path_);
    out.append(buffer, static_cast<size_t>(n));
  }
}

std::vector<int64_t> ModelDir::versions() const {
  std::vector<int64_t> out;
  DirHandle d = list(open("", O_RDONLY | O_DIRECTORY));
  while (const dirent* e = d ? ::readdir(d.get()) : nullptr) {
    int64_t v = 0;
    const char* end = e->d_name + std::strlen(e->d_name);
    auto r = std::from_chars(e->d_name, end, v);
    if (r.ec != std::errc() || r.ptr != end || v < 1 || e->d_name[0] == '0') continue;
    struct stat st {};
    if (::fstatat(dir_.get(), e->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode)) out.push_back(v);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> ModelDir::files(std::string_view relative_dir) const {
  std::vector<std::string> out;
  Fd folder = open(relative_dir, O_RDONLY | O_DIRECTORY);
  const int raw = folder.get();
  DirHandle d = list(Fd(::dup(raw)));
  while (const dirent* e = d ? ::readdir(d.get()) : nullptr) {
    struct stat st {};
    if (::fstatat(raw, e->d_name, &st, 0) == 0 && S_ISREG(st.st_mode)) out.emplace_back(e->d_name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string ModelDir::checked_path(std::string_view relative) const {
  Fd fd = open(relative, O_PATH);
  char target[4096];
  const std::string link = cat("/proc/self/fd/", fd.get());
  ssize_t n = ::readlink(link.c_str(), target, sizeof target);
  if (n > 0 && n < static_cast<ssize_t>(sizeof target)) return {target, static_cast<size_t>(n)};
  return cat(path_, "/", relative);
}

uint64_t ModelDir::fingerprint() const {
  return hash_tree(dir_.get(), 0);
}

std::string version_path(int64_t version, std::string_view file) {
  return version == 0 ? std::string(file) : cat(version, "/", file);
}

}  // namespace pelton::serve
