// SPDX-License-Identifier: Apache-2.0
// Files: read whole, map read-only, replace atomically. Every error names the path; a missing file is
// not_found, a full disk or quota disk_full, anything else io.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pelton {

inline constexpr uint64_t default_read_limit_bytes = uint64_t{1} << 31;

bool file_exists(const std::string& path);    // a regular file, through links
bool folder_exists(const std::string& path);  // a folder, through links
uint64_t file_size_bytes(const std::string& path);

// The whole file. One of more than `limit_bytes` is refused with `limit` before it is read.
std::string read_file(const std::string& path, uint64_t limit_bytes = default_read_limit_bytes);

// Replaces `path` with `content`: after a crash or an error the old file or the new one is there, whole.
void write_file(const std::string& path, std::string_view content);

// `relative` below `folder`, links resolved. A path that is absolute or leads out of the folder, also through
// a link, is refused with bad_format: such names come from files of others.
std::string path_inside(const std::string& folder, std::string_view relative);

// A file mapped for reading. The bytes stay valid as long as the object; if another process shortens the file
// meanwhile, reading past its new end ends the process, so map only what nobody else writes.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// The pages that lie whole in `bytes` leave this process's memory if they belong to a live MappedFile;
// reading them again fetches them from the file. False, and nothing happens, for other memory.
bool forget_pages(std::span<const std::byte> bytes);

// A file under construction: a temporary one beside `path` that commit() puts in its place. Without commit()
// the temporary file is removed.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(std::span<const std::byte> bytes);  // appends
  void write(std::string_view text);
  void write_at(uint64_t offset, std::span<const std::byte> bytes);  // over bytes written before
  void pad_to(uint64_t alignment_bytes);                             // appends zeros
  uint64_t size_bytes() const { return size_bytes_; }
  void commit();  // once: flushes to the disk, then renames

 private:
  std::string path_, temporary_;
  int fd_ = -1;
  uint64_t size_bytes_ = 0;
};

// Throws what errno says about `path`, in the codes above. `action` is a verb: "open", "write".
[[noreturn]] void fail_errno(int error_number, std::string_view action, const std::string& path);

}  // namespace pelton
