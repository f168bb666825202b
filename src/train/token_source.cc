// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "train/loader.h"

namespace pelton::train {

namespace {

DType element_of(const std::string& type) {
  if (type == "u16") return DType::u16;
  if (type == "i32") return DType::i32;
  return DType::u8;
}

// Windows do not cross files.
class TokenSource : public data::Source {
 public:
  TokenSource(const std::vector<std::string>& files, const std::string& type, int64_t length, int64_t stride)
      : dtype_(element_of(type)), width_(bits(dtype_) / 8), length_(length), stride_(stride) {
    for (const std::string& path : files) {
      auto file = std::make_unique<data::PositionedFile>(path);
      if (file->size() % width_)
        fail(ErrorCode::bad_format,
             cat("the file has ", file->size(), " bytes, no whole number of ", name(dtype_)), path);
      int64_t tokens = file->size() / width_;
      int64_t windows = tokens > length ? (tokens - 1 - length) / stride + 1 : 0;
      if (windows == 0)
        fail(ErrorCode::bad_format,
             cat("the file has ", tokens, " tokens, fewer than one window of ", length + 1), path,
             "lower the model's length");
      first_.push_back(total_);
      total_ += windows;
      append(identity_, cat(file->size(), ","));
      files_.push_back(std::move(file));
    }
    append(identity_, cat(name(dtype_), " ", length));
    if (stride != length) append(identity_, cat(" every ", stride));
  }
  int64_t size() const override { return total_; }
  std::string identity() const override { return cat("tokens ", identity_); }

  data::Sample read(int64_t index) const override {
    size_t f =
        static_cast<size_t>(std::upper_bound(first_.begin(), first_.end(), index) - first_.begin()) - 1;
    int64_t offset = (index - first_[f]) * stride_ * width_;
    Tensor bytes = files_[f]->read_bytes(offset, (length_ + 1) * width_);
    Tensor raw = Tensor::borrow(dtype_, {length_ + 1}, bytes.data(), std::make_shared<Tensor>(bytes));
    std::vector<int64_t> all = to_ints(raw);
    data::Sample s;
    s.index = index;
    s.origin = {files_[f]->path(), "", offset};
    s.set("tokens", Tensor::from<int64_t>({length_}, std::vector<int64_t>(all.begin(), all.end() - 1)));
    s.set("label", Tensor::from<int64_t>({length_}, std::vector<int64_t>(all.begin() + 1, all.end())));
    return s;
  }

 private:
  DType dtype_;
  int64_t width_, length_, stride_, total_ = 0;
  std::vector<std::unique_ptr<data::PositionedFile>> files_;
  std::vector<int64_t> first_;
  std::string identity_;
};

class Subset : public data::Source {
 public:
  Subset(std::shared_ptr<const data::Source> source, std::vector<int64_t> indices, std::string identity)
      : source_(std::move(source)), indices_(std::move(indices)), identity_(std::move(identity)) {}
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  data::Sample read(int64_t index) const override {
    data::Sample s = source_->read(indices_[static_cast<size_t>(index)]);
    s.index = index;
    return s;
  }
  int64_t stored_bytes(int64_t index) const override {
    return source_->stored_bytes(indices_[static_cast<size_t>(index)]);
  }
  std::vector<std::string> classes() const override { return source_->classes(); }
  Dims picture_dims(std::string_view field) const override { return source_->picture_dims(field); }
  std::string identity() const override { return cat(source_->identity(), " ", identity_); }

 private:
  std::shared_ptr<const data::Source> source_;
  std::vector<int64_t> indices_;
  std::string identity_;
};

}  // namespace

std::shared_ptr<const data::Source> token_source(const std::vector<std::string>& files,
                                                 const std::string& type, int64_t length, int64_t stride) {
  return std::make_shared<TokenSource>(files, type, length, stride);
}

std::shared_ptr<const data::Source> subset(std::shared_ptr<const data::Source> source,
                                           std::vector<int64_t> indices, std::string identity) {
  return std::make_shared<Subset>(std::move(source), std::move(indices), std::move(identity));
}

}  // namespace pelton::train
