// SPDX-License-Identifier: Apache-2.0
#include "data/source/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/interrupt.h"
#include "data/source/http.h"
#if PELTON_HAVE_ZSTD
#include <zstd.h>
#endif

namespace pelton::data {
namespace {

std::string gunzip(const std::string& in, const std::string& where, uint64_t limit) {
  z_stream z{};
  PELTON_CHECK(inflateInit2(&z, 15 + 32) == Z_OK, "zlib");
  std::unique_ptr<z_stream, int (*)(z_stream*)> end(&z, inflateEnd);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  size_t rest = in.size();  // behind what zlib has been given: it counts in 32 bits
  std::string out;
  std::vector<char> chunk(1 << 18);
  for (;;) {
    if (z.avail_in == 0) rest -= z.avail_in = static_cast<uInt>(std::min<size_t>(rest, 1u << 30));
    z.next_out = reinterpret_cast<Bytef*>(chunk.data());
    z.avail_out = static_cast<uInt>(chunk.size());
    const int status = inflate(&z, Z_NO_FLUSH);
    out.append(chunk.data(), chunk.size() - z.avail_out);
    if (out.size() > limit) fail(ErrorCode::limit, cat("expands to more than ", limit, " bytes"), where);
    if (status == Z_STREAM_END) {
      if (z.avail_in == 0 && rest == 0) return out;
      inflateReset(&z);  // another member follows
    } else if (status != Z_OK || (z.avail_in == 0 && rest == 0 && z.avail_out != 0)) {
      fail(ErrorCode::bad_format, "damaged or cut gzip data", where);
    }
  }
}

#if PELTON_HAVE_ZSTD
std::string unzstd(const std::string& in, const std::string& where, uint64_t limit) {
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> z(ZSTD_createDStream(), ZSTD_freeDStream);
  ZSTD_inBuffer input{in.data(), in.size(), 0};
  std::string out;
  std::vector<char> chunk(ZSTD_DStreamOutSize());
  for (size_t left = 1; input.pos < input.size || left;) {
    ZSTD_outBuffer output{chunk.data(), chunk.size(), 0};
    const size_t before = input.pos;
    left = ZSTD_decompressStream(z.get(), &output, &input);
    if (ZSTD_isError(left))
      fail(ErrorCode::bad_format, cat("damaged zstd data: ", ZSTD_getErrorName(left)), where);
    out.append(chunk.data(), output.pos);
    if (out.size() > limit) fail(ErrorCode::limit, cat("expands to more than ", limit, " bytes"), where);
    if (left && input.pos == before && output.pos == 0) fail(ErrorCode::bad_format, "cut zstd data", where);
  }
  return out;
}
#else
std::string unzstd(const std::string&, const std::string& where, uint64_t) {
  fail(ErrorCode::unsupported_op, "this build cannot expand zstd", where,
       "install libzstd and rebuild, or use gzip");
}
#endif

// The classes of sources whose samples meet: where two name a label, they give it the same name.
std::vector<std::string> joint_classes(const std::vector<std::unique_ptr<Source>>& sources) {
  std::vector<std::string> out;
  for (size_t k = 0; k < sources.size(); ++k) {
    std::vector<std::string> own = sources[k]->classes();
    const size_t both = std::min(out.size(), own.size());
    const auto [a, b] = std::ranges::mismatch(out.begin(), out.begin() + static_cast<ptrdiff_t>(both),
                                              own.begin(), own.begin() + static_cast<ptrdiff_t>(both));
    if (a != out.begin() + static_cast<ptrdiff_t>(both))
      fail(ErrorCode::usage,
           cat("label ", a - out.begin(), " is '", *a, "' in one part and '", *b, "' in part ", k + 1),
           "source", "give the parts the same 'classes'");
    if (own.size() > out.size()) out = std::move(own);
  }
  return out;
}

class Concatenated : public Source {
 public:
  explicit Concatenated(std::vector<std::unique_ptr<Source>> sources)
      : sources_(std::move(sources)), classes_(joint_classes(sources_)) {
    for (const auto& s : sources_) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + s->size());
  }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  Sample read(int64_t index) const override {
    const size_t at = static_cast<size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
    Sample s = sources_[at]->read(index - (at ? ends_[at - 1] : 0));
    s.index = index;
    return s;
  }
  int64_t stored_bytes(int64_t index) const override {
    const size_t at = static_cast<size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
    return sources_[at]->stored_bytes(index - (at ? ends_[at - 1] : 0));
  }
  std::vector<std::string> classes() const override { return classes_; }
  std::string identity() const override {
    std::string out = "concat";
    for (const auto& s : sources_) append(out, cat("|", s->identity()));
    return out;
  }

 private:
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<std::string> classes_;
  std::vector<int64_t> ends_;
};

class Mixed : public Source {
 public:
  Mixed(std::vector<std::unique_ptr<Source>> sources, std::vector<double> weights, int64_t size,
        uint64_t seed)
      : sources_(std::move(sources)), classes_(joint_classes(sources_)), identity_(cat("mix ", size)) {
    double total = 0;
    for (double w : weights) append(identity_, cat(" ", w)), total += w;
    for (const auto& s : sources_) append(identity_, cat("|", s->identity()));
    if (!(total > 0 && std::isfinite(total)) || weights.size() != sources_.size() ||
        std::ranges::any_of(weights, [](double w) { return !(w >= 0); }))
      fail(ErrorCode::usage,
           cat("mix needs one weight of at least 0 for each of its ", sources_.size(),
               " sources, with a sum above 0"),
           "source");
    for (size_t i = 0; i < sources_.size(); ++i)
      if (weights[i] > 0 && sources_[i]->size() == 0)
        fail(ErrorCode::usage, cat("part ", i + 1, " of the mix has no samples"), "source");
    std::vector<int64_t> next(sources_.size(), 0);
    picks_.reserve(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      double u = Draw(seed, 0, static_cast<uint64_t>(i), 0x6d6978).uniform(0) * total;
      uint32_t at = 0;
      while (at + 1 < weights.size() && u >= weights[at]) u -= weights[at++];
      while (weights[at] == 0) --at;  // u landed on the upper end of the total
      picks_.emplace_back(at, next[at]++ % sources_[at]->size());
    }
  }
  int64_t size() const override { return static_cast<int64_t>(picks_.size()); }
  Sample read(int64_t index) const override {
    auto [at, inner] = picks_[static_cast<size_t>(index)];
    Sample s = sources_[at]->read(inner);
    s.index = index;
    return s;
  }
  int64_t stored_bytes(int64_t index) const override {
    auto [at, inner] = picks_[static_cast<size_t>(index)];
    return sources_[at]->stored_bytes(inner);
  }
  std::vector<std::string> classes() const override { return classes_; }
  std::string identity() const override { return identity_; }

 private:
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<std::string> classes_;
  std::string identity_;
  std::vector<std::pair<uint32_t, int64_t>> picks_;
};

class FromFunction : public Source {
 public:
  FromFunction(int64_t size, std::function<Sample(int64_t)> f, std::string identity)
      : size_(size), read_(std::move(f)), identity_(std::move(identity)) {}
  int64_t size() const override { return size_; }
  Sample read(int64_t index) const override {
    Sample s;
    try {
      s = read_(index);
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& e) {  // the caller's own: a bad sample as any other
      fail(ErrorCode::io, e.what(), cat("function ", identity_, " at ", index));
    }
    s.index = index;
    return s;
  }
  std::string identity() const override { return cat("function ", identity_, " ", size_); }

 private:
  int64_t size_;
  std::function<Sample(int64_t)> read_;
  std::string identity_;
};

}  // namespace

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

std::string expanded(std::string bytes, const std::string& where, uint64_t limit) {
  if (bytes.starts_with("\x1f\x8b")) return gunzip(bytes, where, limit);
  if (bytes.starts_with("\x28\xb5\x2f\xfd")) return unzstd(bytes, where, limit);
  return bytes;
}

Tensor label_tensor(int64_t label) {
  return Tensor::scalar<int64_t>(label);
}

const std::vector<SourceKind>& source_kinds() {
  static const std::vector<SourceKind> kinds = [] {
    std::vector<SourceKind> all;
    for (auto make : {file_source_kinds, array_source_kinds, table_source_kinds, archive_source_kinds,
                      tfrecord_source_kinds, coco_source_kinds, token_source_kinds, recordio_source_kinds,
                      lmdb_source_kinds})
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
  std::string near = nearest(kind, names);
  fail(ErrorCode::usage, cat("there is no source kind '", kind, "'"), where,
       near.empty() ? "see --schema" : cat("did you mean '", near, "'?"));
}

std::unique_ptr<Source> concatenate(std::vector<std::unique_ptr<Source>> sources) {
  return std::make_unique<Concatenated>(std::move(sources));
}
std::unique_ptr<Source> mix(std::vector<std::unique_ptr<Source>> sources, std::vector<double> weights,
                            int64_t size, uint64_t seed) {
  return std::make_unique<Mixed>(std::move(sources), std::move(weights), size, seed);
}
std::unique_ptr<Source> from_function(int64_t size, std::function<Sample(int64_t)> read,
                                      std::string identity) {
  return std::make_unique<FromFunction>(size, std::move(read), std::move(identity));
}

}  // namespace pelton::data
