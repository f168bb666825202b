// SPDX-License-Identifier: Apache-2.0
// Where samples come from. Every source is indexed: sample i can be read at any time by any thread, which is
// what makes global shuffling, disjoint shards and exact resume possible for all of them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>

#include "data/sample.h"
#include "data/schema.h"

namespace pelton::data {

class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  virtual Sample read(int64_t index) const = 0;  // any thread; errors name the place
  virtual std::vector<std::string> classes() const { return {}; }
  // What the sample takes where it is stored, for bucketing by size; -1: not known without reading it.
  virtual int64_t stored_bytes(int64_t) const { return -1; }
  // [height, width, channels] of the u8 pixels that this field of every sample is; empty where it is a file,
  // or they differ.
  virtual Dims picture_dims(std::string_view) const { return {}; }
  // Text that changes when the order or number of samples does; resuming checks it.
  virtual std::string identity() const = 0;
};

struct SourceKind {
  Schema schema;
  // Relative paths are below `folder`.
  std::function<std::unique_ptr<Source>(const Args&, const std::string& folder)> make;
};
const std::vector<SourceKind>& source_kinds();
std::unique_ptr<Source> make_source(std::string_view kind, const Options& options, const std::string& folder,
                                    const std::string& where);

// All of the sources one after another.
std::unique_ptr<Source> concatenate(std::vector<std::unique_ptr<Source>> sources);
// `size` samples, each from a source drawn by weight (by seed and index); a source's samples come in order,
// starting again at its end.
std::unique_ptr<Source> mix(std::vector<std::unique_ptr<Source>> sources, std::vector<double> weights,
                            int64_t size, uint64_t seed);
// The caller's own function of the index.
std::unique_ptr<Source> from_function(int64_t size, std::function<Sample(int64_t)> read,
                                      std::string identity);

// --- for the sources themselves

// While one lives, reads on this thread that take long (waiting for a server) ask `flag` and end with a
// cancelled error once it is set: that is how a pipeline closes without waiting for them.
class GiveUpScope {
 public:
  explicit GiveUpScope(const std::atomic<bool>& flag);
  ~GiveUpScope();
  GiveUpScope(const GiveUpScope&) = delete;

 private:
  const std::atomic<bool>* outer_;
};
bool given_up();  // by the scope of this thread, or by a signal

class HttpFile;

// A file read by position from any thread. A file that shrank since it was opened is an io error.
// Paths that start with http:// or https:// are read by ranges (data/source/http.h).
class PositionedFile {
 public:
  explicit PositionedFile(std::string path);
  ~PositionedFile();
  PositionedFile(const PositionedFile&) = delete;
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  void read(int64_t offset, std::span<uint8_t> into) const;
  Tensor read_bytes(int64_t offset, int64_t count) const;  // u8 [count]

 private:
  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
  std::unique_ptr<const HttpFile> http_;
};

std::string below(const std::string& folder, const std::string& path);
Tensor whole_file(const std::string& path);       // u8 [size], at most 2 GiB
std::string whole_text(const std::string& path);  // of any size; a file or a URL, as all of these
// Expands gzip or zstd by its magic bytes, other bytes stay; limit error above `limit` bytes.
std::string expanded(std::string bytes, const std::string& where, uint64_t limit = uint64_t{4} << 30);
Tensor label_tensor(int64_t label);  // i64 scalar
// "a{00..12}.tar" to a00.tar ... a12.tar.
std::vector<std::string> expand_ranges(const std::vector<std::string>& patterns, const std::string& where);

// The kinds, by file.
std::vector<SourceKind> file_source_kinds();      // folder, list
std::vector<SourceKind> idx_source_kinds();       // mnist, cifar
std::vector<SourceKind> array_source_kinds();     // npy, raw, synthetic
std::vector<SourceKind> table_source_kinds();     // csv
std::vector<SourceKind> archive_source_kinds();   // tar
std::vector<SourceKind> tfrecord_source_kinds();  // tfrecord
std::vector<SourceKind> coco_source_kinds();      // coco
std::vector<SourceKind> token_source_kinds();     // tokens
std::vector<SourceKind> recordio_source_kinds();  // recordio
std::vector<SourceKind> lmdb_source_kinds();      // lmdb

}  // namespace pelton::data
