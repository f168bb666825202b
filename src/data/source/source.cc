// SPDX-License-Identifier: Apache-2.0
#include "data/source/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/interrupt.h"
#include "data/source/http.h"

namespace pelton::data {
namespace {
thread_local const std::atomic<bool>* give_up_flag = nullptr;
}

GiveUpScope::GiveUpScope(const std::atomic<bool>& flag) : outer_(std::exchange(give_up_flag, &flag)) {}
GiveUpScope::~GiveUpScope() {
  give_up_flag = outer_;
}
bool given_up() {
  return (give_up_flag && give_up_flag->load(std::memory_order_relaxed)) || interrupted();
}

PositionedFile::PositionedFile(std::string path) : path_(std::move(path)) {
  if (is_url(path_)) {
    http_ = std::make_unique<HttpFile>(path_);
    size_ = http_->size();
    return;
  }
  fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not block the open
  if (fd_ < 0) fail_errno(errno, "open", path_);
  struct stat st {};
  if (fstat(fd_, &st) != 0) fail_errno(errno, "inspect", path_);
  if (!S_ISREG(st.st_mode)) fail(ErrorCode::io, "not a regular file", path_);
  size_ = st.st_size;
}
PositionedFile::~PositionedFile() {
  if (fd_ >= 0) close(fd_);
}

void PositionedFile::read(int64_t offset, std::span<uint8_t> into) const {
  if (http_) return http_->read(offset, into);
  for (size_t done = 0; done < into.size();) {
    const ssize_t n = pread(fd_, into.data() + done, into.size() - done, offset + static_cast<int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(errno, "read", path_);
    if (n == 0) {
      struct stat now {};
      fstat(fd_, &now);
      fail(ErrorCode::io, cat("the file has ", now.st_size, " bytes, but had ", size_, " when it was opened"),
           path_, "do not change files while they are read");
    }
    done += static_cast<size_t>(n);
  }
}

Tensor PositionedFile::read_bytes(int64_t offset, int64_t count) const {
  Tensor t(DType::u8, {count});
  read(offset, {t.as_mutable<uint8_t>(), static_cast<size_t>(count)});
  return t;
}

std::string below(const std::string& folder, const std::string& path) {
  return path.starts_with('/') || folder.empty() || is_url(path) ? path : cat(folder, "/", path);
}

Tensor whole_file(const std::string& path) {
  PositionedFile f(path);
  if (f.size() > (int64_t{1} << 31)) fail(ErrorCode::limit, cat("the file has ", f.size(), " bytes"), path);
  return f.read_bytes(0, f.size());
}

std::string whole_text(const std::string& path) {
  PositionedFile f(path);
  std::string out;
  try {
    out.resize(static_cast<size_t>(f.size()));
  } catch (const std::exception&) {  // bad_alloc or length_error
    fail(ErrorCode::out_of_memory, cat("no memory for the ", f.size(), " bytes of the file"), path);
  }
  f.read(0, {reinterpret_cast<uint8_t*>(out.data()), out.size()});
  return out;
}

Tensor label_tensor(int64_t label) {
  return Tensor::scalar<int64_t>(label);
}

const std::vector<SourceKind>& source_kinds() {
  static const std::vector<SourceKind> kinds = [] {
    std::vector<SourceKind> all;
    for (auto make : {file_source_kinds, idx_source_kinds, array_source_kinds, table_source_kinds,
                      archive_source_kinds, tfrecord_source_kinds, coco_source_kinds, token_source_kinds,
                      recordio_source_kinds, lmdb_source_kinds})
      for (SourceKind& k : make()) all.push_back(std::move(k));
    return all;
  }();
  return kinds;
}

std::unique_ptr<Source> make_source(std::string_view kind, const Options& options, const std::string& folder,
                                    const std::string& where) {
  std::vector<std::string> names;
  for (const SourceKind& k : source_kinds()) {
    if (k.schema.name == kind) return k.make(Args(k.schema, options, where), folder);
    names.push_back(k.schema.name);
  }
  if (kind == "parquet")
    fail(ErrorCode::unsupported_op, "Parquet files are not read", where,
         "convert to CSV, .npy or tar shards");
  const std::string near = nearest(kind, names);
  std::string all;
  for (const std::string& name : names) append(all, cat(all.empty() ? "the kinds are " : ", ", name));
  fail(ErrorCode::usage, cat("there is no source kind '", kind, "'"), where,
       near.empty() ? all : cat("did you mean '", near, "'?"));
}

}  // namespace pelton::data
