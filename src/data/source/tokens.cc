// SPDX-License-Identifier: Apache-2.0
// Token files: headerless numbers, cut into windows. The last token of a window is the first of the next, so
// every token but a file's first is a label once.
#include <algorithm>

#include "data/source/source.h"

namespace pelton::data {
namespace {

class Tokens : public Source {
 public:
  Tokens(const Args& a, const std::string& base)
      : dtype_(*dtype_from_name(a.text("dtype"))), width_(bits(dtype_) / 8), length_(a.integer("length")) {
    for (const std::string& p : expand_ranges(a.texts("files"), a.where())) {
      auto file = std::make_unique<PositionedFile>(below(base, p));
      if (file->size() % width_)
        fail(ErrorCode::bad_format,
             cat("the file has ", file->size(), " bytes, no whole number of ", name(dtype_)), file->path(),
             "set 'dtype' to the type of its tokens");
      const int64_t tokens = file->size() / width_, windows = tokens > length_ ? (tokens - 1) / length_ : 0;
      if (windows == 0)
        fail(ErrorCode::bad_format,
             cat("the file has ", tokens, " tokens, fewer than one window of ", length_ + 1), file->path(),
             "lower 'length'");
      first_.push_back(total_);
      total_ += windows;
      append(identity_, cat(" ", file->size()));
      files_.push_back(std::move(file));
    }
  }
  int64_t size() const override { return total_; }
  std::string identity() const override { return cat("tokens ", name(dtype_), " ", length_, identity_); }

  Sample read(int64_t index) const override {
    const auto f = static_cast<size_t>(std::ranges::upper_bound(first_, index) - first_.begin()) - 1;
    const int64_t offset = (index - first_[f]) * length_ * width_;
    Sample s;
    s.index = index;
    s.origin = {files_[f]->path(), "", offset};
    const Tensor bytes = files_[f]->read_bytes(offset, (length_ + 1) * width_);
    const Tensor raw = Tensor::borrow(dtype_, {length_ + 1}, bytes.data(), std::make_shared<Tensor>(bytes));
    const std::vector<int64_t> all = to_ints(raw);
    s.set("tokens", Tensor::from<int64_t>({length_}, {all.begin(), all.end() - 1}));
    s.set("label", Tensor::from<int64_t>({length_}, {all.begin() + 1, all.end()}));
    return s;
  }

 private:
  DType dtype_;
  int64_t width_, length_, total_ = 0;
  std::vector<std::unique_ptr<PositionedFile>> files_;
  std::vector<int64_t> first_;  // sample of each file
  std::string identity_;
};

}  // namespace

std::vector<SourceKind> token_source_kinds() {
  using T = OptionType;
  return {{{"tokens",
            "windows of token files: fields tokens and label, i64 [length], label moved on by one",
            {{"files", T::texts, {}, "the files, in order; NAME{000..127} stands for a numbered range"},
             {"dtype", T::text, "u16", "of a token", kAny, kNone, {"u8", "u16", "i32", "u32", "i64"}},
             {"length", T::integer, {}, "tokens of a window", 1, 1 << 24}}},
           [](const Args& a, const std::string& base) -> std::unique_ptr<Source> {
             return std::make_unique<Tokens>(a, base);
           }}};
}

}  // namespace pelton::data
