// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace pelton {
namespace {

// Closes on every way out of a function.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

int open_for_reading(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not block the open
  if (fd < 0) fail_errno(errno, "open", path);
  return fd;
}

uint64_t regular_size(int fd, const std::string& path) {
  struct stat st;
  if (::fstat(fd, &st) != 0) fail_errno(errno, "read", path);
  if (S_ISDIR(st.st_mode)) fail(ErrorCode::io, "is a folder, not a file", path);
  if (!S_ISREG(st.st_mode)) fail(ErrorCode::io, "is not a regular file", path);
  return static_cast<uint64_t>(st.st_size);
}

std::string folder_of(const std::string& path) {
  auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The path with links resolved; it must exist.
std::string resolved(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (!real) fail_errno(errno, "open", path);
  std::string out(real);
  std::free(real);
  return out;
}

// Other users get what the process's umask gives any new file. Reading the mask means setting it, so it is
// read once.
mode_t new_file_mode() {
  static const mode_t mode = [] {
    mode_t mask = ::umask(077);
    ::umask(mask);
    return static_cast<mode_t>(0666 & ~mask);
  }();
  return mode;
}

}  // namespace

void fail_errno(int error_number, std::string_view action, const std::string& path) {
  auto code = ErrorCode::io;
  std::string fix;
  if (error_number == ENOENT || error_number == ENOTDIR) {
    code = ErrorCode::not_found;
    fix = "check the path";
  } else if (error_number == ENOSPC || error_number == EDQUOT) {
    code = ErrorCode::disk_full;
    fix = "free some space or write elsewhere";
  } else if (error_number == EACCES || error_number == EPERM) {
    fix = "check the permissions of the file and its folder";
  }
  fail(code, cat("cannot ", action, ": ", std::generic_category().message(error_number)), path,
       std::move(fix));
}

bool file_exists(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}
bool folder_exists(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}
uint64_t file_size_bytes(const std::string& path) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) fail_errno(errno, "open", path);
  return static_cast<uint64_t>(st.st_size);
}

std::string read_file(const std::string& path, uint64_t limit_bytes) {
  Descriptor file{open_for_reading(path)};
  uint64_t size = regular_size(file.fd, path);
  if (size > limit_bytes)
    fail(ErrorCode::limit, cat("has ", size, " bytes, more than the ", limit_bytes, " allowed here"), path);
  std::string out(size, '\0');
  size_t have = 0;
  while (have < out.size()) {
    ssize_t n = ::read(file.fd, out.data() + have, out.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(errno, "read", path);
    if (n == 0) break;  // shortened by somebody else meanwhile
    have += static_cast<size_t>(n);
  }
  out.resize(have);
  return out;
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

std::string path_inside(const std::string& folder, std::string_view relative) {
  if (relative.empty() || relative.front() == '/' || relative.find('\0') != relative.npos)
    fail(ErrorCode::bad_format, cat("\"", relative, "\" is not a relative path"), folder,
         "only files inside this folder may be named");
  std::string root = resolved(folder.empty() ? "." : folder);
  std::string target = resolved(cat(root, "/", relative));
  if (root != "/") root.push_back('/');
  if (target.compare(0, root.size(), root) != 0)
    fail(ErrorCode::bad_format, cat("\"", relative, "\" leads out of the folder"), folder,
         "only files inside this folder may be named");
  return target;
}

namespace {

// Live mappings by first byte, so that nobody gives up pages that are not a file's.
struct Mappings {
  std::mutex mutex;
  std::map<const std::byte*, size_t> sizes;
};
Mappings& mappings() {
  static auto* const instance = new Mappings;
  return *instance;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  Descriptor file{open_for_reading(path)};
  uint64_t size = regular_size(file.fd, path);
  if (size == 0) return;  // mmap refuses an empty range
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (at == MAP_FAILED) fail_errno(errno, "map", path);
  data_ = static_cast<const std::byte*>(at);
  size_bytes_ = size;
  std::lock_guard lock(mappings().mutex);
  mappings().sizes[data_] = size_bytes_;
}
MappedFile::~MappedFile() {
  if (!data_) return;
  std::lock_guard lock(mappings().mutex);
  mappings().sizes.erase(data_);
  ::munmap(const_cast<std::byte*>(data_), size_bytes_);
}

bool forget_pages(std::span<const std::byte> bytes) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  std::lock_guard lock(mappings().mutex);
  auto it = mappings().sizes.upper_bound(bytes.data());
  if (it == mappings().sizes.begin()) return false;
  --it;
  if (bytes.data() + bytes.size() > it->first + it->second) return false;
  uintptr_t begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  uintptr_t end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  return true;
}
MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), temporary_(cat(path, ".tmp-XXXXXX")) {
  if (folder_exists(path)) fail(ErrorCode::io, "is a folder, not a file", path);
  // The rename of commit() would put a file in the place of a device such as /dev/null.
  struct stat there;
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    fail(ErrorCode::io, "is a device or a pipe, which cannot be replaced", path, "name a file");
  fd_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd_ < 0) fail_errno(errno, "create", path);
}
AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write_at(size_bytes_, bytes);
  size_bytes_ += bytes.size();
}
void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  PELTON_CHECK(fd_ >= 0 && offset <= size_bytes_, path_);
  while (!bytes.empty()) {
    ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(errno, "write", path_);
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void AtomicFile::pad_to(uint64_t alignment_bytes) {
  uint64_t rest = size_bytes_ % alignment_bytes;
  if (rest) write(std::string(alignment_bytes - rest, '\0'));
}

void AtomicFile::commit() {
  PELTON_CHECK(fd_ >= 0, path_);
  if (::fchmod(fd_, new_file_mode()) != 0 || ::fsync(fd_) != 0) fail_errno(errno, "write", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_errno(errno, "replace", path_);
  ::close(std::exchange(fd_, -1));
  // The rename itself must reach the disk too. Some file systems cannot sync a folder; the file is whole
  // anyway.
  Descriptor folder{::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (folder.fd >= 0) ::fsync(folder.fd);
}

}  // namespace pelton
