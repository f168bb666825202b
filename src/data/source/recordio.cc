// SPDX-License-Identifier: Apache-2.0
#include "data/source/recordio.h"

#include <cmath>
#include <cstring>

#include "data/source/source.h"

namespace pelton::data {
namespace {

constexpr uint32_t kMagic = 0xced7230a;

class RecordIo : public Source {
 public:
  RecordIo(const Args& a, const std::string& base) : image_(a.boolean("image")) {
    for (const std::string& p : expand_ranges(a.texts("files"), a.where())) {
      files_.push_back(std::make_unique<PositionedFile>(below(base, p)));
      const PositionedFile& f = *files_.back();
      auto read = [&](int64_t at, std::span<uint8_t> into) { f.read(at, into); };
      for (Record& r : recordio_index(f.size(), read, f.path())) {
        records_.push_back(std::move(r));
        file_of_.push_back(static_cast<uint32_t>(files_.size() - 1));
      }
    }
    if (records_.empty())
      fail(ErrorCode::not_found, "the files hold no records", files_.empty() ? a.where() : files_[0]->path());
  }
  int64_t size() const override { return static_cast<int64_t>(records_.size()); }
  std::string identity() const override {
    std::string out = cat("recordio ", records_.size());
    for (const auto& f : files_) append(out, cat(" ", f->size()));
    return out;
  }
  int64_t stored_bytes(int64_t index) const override {
    int64_t n = 0;
    for (const RecordPart& p : records_[static_cast<size_t>(index)]) n += p.size;
    return n;
  }
  Sample read(int64_t index) const override {
    const Record& r = records_[static_cast<size_t>(index)];
    const PositionedFile& f = *files_[file_of_[static_cast<size_t>(index)]];
    Sample s;
    s.index = index;
    s.origin = {f.path(), cat("record ", index), r[0].offset};
    int64_t bytes = 4 * static_cast<int64_t>(r.size() - 1);
    for (const RecordPart& p : r) bytes += p.size;
    Tensor payload(DType::u8, {bytes});
    uint8_t* to = payload.as_mutable<uint8_t>();
    for (size_t i = 0; i < r.size(); ++i) {
      if (i > 0) std::memcpy(std::exchange(to, to + 4), &kMagic, 4);  // where the payload was cut
      f.read(r[i].offset, {to, static_cast<size_t>(r[i].size)});
      to += r[i].size;
    }
    if (image_)
      read_image_record(payload, s, s.origin.str());
    else
      s.set("data", std::move(payload));
    return s;
  }

 private:
  bool image_;
  std::vector<std::unique_ptr<PositionedFile>> files_;
  std::vector<Record> records_;
  std::vector<uint32_t> file_of_;
};

}  // namespace

std::vector<Record> recordio_index(int64_t file_size,
                                   const std::function<void(int64_t, std::span<uint8_t>)>& read,
                                   const std::string& where) {
  std::vector<Record> out;
  bool open = false;  // a record whose last part is still to come
  for (int64_t at = 0; at < file_size;) {
    auto bad = [&](std::string what) {
      fail(ErrorCode::bad_format, std::move(what), cat(where, " at byte ", at),
           "the file is damaged, or not a RecordIO file");
    };
    uint32_t head[2];
    if (file_size - at < 8) bad("the record header is cut short");
    read(at, {reinterpret_cast<uint8_t*>(head), 8});
    if (head[0] != kMagic) bad("a record does not start with the magic number");
    const uint32_t part = head[1] >> 29;
    const int64_t size = head[1] & 0x1fffffff;
    if (part > 3 || open != (part == 2 || part == 3)) bad(cat("a part of kind ", part, " is out of order"));
    if (size > file_size - at - 8) bad(cat("a record of ", size, " bytes runs past the end of the file"));
    if (part < 2) out.emplace_back();
    out.back().push_back({at + 8, size});
    open = part == 1 || part == 2;
    at += 8 + (size + 3) / 4 * 4;
  }
  if (open) fail(ErrorCode::bad_format, "the last record has no end", where, "the file is cut short");
  return out;
}

void read_image_record(const Tensor& payload, Sample& s, const std::string& where) {
  // u32 number of labels (0: the one in the header), f32 label, u64 id, u64 second id.
  constexpr int64_t kHeader = 24;
  const uint8_t* b = payload.as<uint8_t>();
  const int64_t size = payload.count();
  if (size < kHeader)
    fail(ErrorCode::bad_format, cat("an image record of ", size, " bytes has no header"), where,
         "set image = false for records of another kind");
  uint32_t labels;
  float label;
  int64_t id;
  std::memcpy(&labels, b, 4);
  std::memcpy(&label, b + 4, 4);
  std::memcpy(&id, b + 8, 8);
  if (labels > (size - kHeader) / 4)
    fail(ErrorCode::bad_format, cat("an image record of ", size, " bytes names ", labels, " labels"), where);
  const int64_t start = kHeader + int64_t{4} * labels;
  if (labels > 0) {
    Tensor t(DType::f32, {labels});
    std::memcpy(t.mutable_data(), b + kHeader, size_t{4} * labels);
    s.set("label", std::move(t));
  } else if (std::trunc(label) == label && std::fabs(label) <= 1e9f) {
    s.set("label", label_tensor(static_cast<int64_t>(label)));
  } else {
    s.set("label", Tensor::scalar<float>(label));
  }
  s.set("id", Tensor::scalar<int64_t>(id));
  s.set("image", Tensor::borrow(DType::u8, {size - start}, b + start, std::make_shared<Tensor>(payload)));
}

std::vector<SourceKind> recordio_source_kinds() {
  using T = OptionType;
  return {{{"recordio",
            "RecordIO files of image records, or field data u8 [bytes] for other payloads",
            {{"files", T::texts, {}, "the files, in order; NAME{000..127} stands for a numbered range"},
             {"image", T::boolean, true, "payloads are image records: fields label, id, image"}}},
           [](const Args& a, const std::string& base) -> std::unique_ptr<Source> {
             return std::make_unique<RecordIo>(a, base);
           }}};
}

}  // namespace pelton::data
