// SPDX-License-Identifier: Apache-2.0
// One model's folder, held open. Every path that a configuration names is opened relative to it and cannot
// leave it, by "..", by an absolute path or by a symbolic link.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/core/blob.h"

namespace pelton::serve {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& o) noexcept : fd_(o.fd_) { o.fd_ = -1; }
  Fd& operator=(Fd&& o) noexcept;
  ~Fd();
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class ModelDir {
 public:
  // not_found or io if `path` is no folder. The folder itself may be a link.
  explicit ModelDir(std::string path, bool uploaded = false);

  const std::string& path() const { return path_; }
  bool uploaded() const { return uploaded_; }  // its files came with a request
  bool exists(std::string_view relative) const;
  std::string read(std::string_view relative, size_t max_bytes) const;  // limit if larger
  std::vector<int64_t> versions() const;                                // numeric sub-folders, ascending
  std::vector<std::string> files(std::string_view relative_dir) const;  // names of regular files, sorted
  // A path for libraries that insist on one, checked to lie below the folder.
  std::string checked_path(std::string_view relative) const;
  // Changes when a file of the model is added, removed, replaced or written.
  uint64_t fingerprint() const;

 private:
  Fd open(std::string_view relative, int flags) const;

  std::string path_;
  bool uploaded_;
  Fd dir_;
};

// Joins a version folder and a file name; version 0 is the model's folder itself (a bare model file).
std::string version_path(int64_t version, std::string_view file);

}  // namespace pelton::serve
