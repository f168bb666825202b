// SPDX-License-Identifier: Apache-2.0
// LMDB databases, with Caffe's Datum messages as values or any other bytes. The file is read by position,
// never mapped: a damaged one is an error (data/source/lmdb_index.h).
#include <algorithm>
#include <filesystem>

#include "base/hash.h"
#include "data/source/datum.h"
#include "data/source/lmdb_index.h"
#include "data/source/source.h"

namespace pelton::data {
namespace {

std::string data_file(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_directory(path, none) ? cat(path, "/data.mdb") : path;
}

class Lmdb : public Source {
 public:
  Lmdb(const Args& a, const std::string& base)
      : file_(data_file(below(base, a.text("path")))), datum_(a.boolean("datum")) {
    records_ = lmdb_index(
        file_.size(), [&](int64_t at, std::span<uint8_t> into) { file_.read(at, into); }, file_.path());
    if (records_.empty()) fail(ErrorCode::not_found, "the database holds no records", file_.path());
  }
  int64_t size() const override { return std::ssize(records_); }
  std::string identity() const override {
    std::string keys;
    for (const LmdbRecord& r : records_) append(keys, cat(r.key, "\n", r.size, "\n"));
    return cat("lmdb ", records_.size(), " ", checksum(keys).str());
  }
  int64_t stored_bytes(int64_t index) const override { return records_[static_cast<size_t>(index)].size; }

  Sample read(int64_t index) const override {
    const LmdbRecord& r = records_[static_cast<size_t>(index)];
    Sample s;
    s.index = index;
    s.origin = {file_.path(), cat("key ", printable(r.key)), r.offset};
    Tensor bytes = file_.read_bytes(r.offset, r.size);
    if (!datum_) {
      s.set("data", std::move(bytes));
      return s;
    }
    with_place(s.origin.str(), [&] {
      read_datum({reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(bytes.count())}, s);
    });
    return s;
  }

 private:
  static std::string printable(std::string name) {
    std::ranges::replace_if(
        name, [](unsigned char c) { return c < 32 || c > 126; }, '?');
    return name;
  }
  PositionedFile file_;
  bool datum_;
  std::vector<LmdbRecord> records_;
};

}  // namespace

std::vector<SourceKind> lmdb_source_kinds() {
  using T = OptionType;
  return {{{"lmdb",
            "an LMDB database; Caffe's Datum values become image and label, others field data u8 [bytes]",
            {{"path", T::text, {}, "its folder, or its one file"},
             {"datum", T::boolean, true, "values are Datum messages"}}},
           [](const Args& a, const std::string& base) -> std::unique_ptr<Source> {
             return std::make_unique<Lmdb>(a, base);
           }}};
}

}  // namespace pelton::data
