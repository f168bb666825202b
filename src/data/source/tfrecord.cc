// SPDX-License-Identifier: Apache-2.0
// TFRecord files: length, checksum of the length, payload, checksum of the payload (masked CRC-32C). Payloads
// are raw bytes, or tf.train.Example messages whose features become fields.
#include <algorithm>
#include <array>
#include <cstring>

#include "data/source/source.h"
#include "data/source/tfrecord.h"
#include "tensor/proto_wire.h"

namespace pelton::data {
namespace {

// Castagnoli polynomial, reflected, eight bytes a step.
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;
const CrcTables& crc_tables() {
  static const CrcTables tables = [] {
    CrcTables t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = c & 1 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
      t[0][i] = c;
    }
    for (size_t k = 1; k < 8; ++k)
      for (size_t i = 0; i < 256; ++i) t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 255];
    return t;
  }();
  return tables;
}

using wire::FieldSpec;
using wire::Kind;
constexpr FieldSpec kFields[] = {{"BytesList", 1, "value", Kind::bytes, true, ""},
                                 {"Example", 1, "features", Kind::message, false, "Features"},
                                 {"Feature", 1, "bytes_list", Kind::message, false, "BytesList"},
                                 {"Feature", 2, "float_list", Kind::message, false, "FloatList"},
                                 {"Feature", 3, "int64_list", Kind::message, false, "Int64List"},
                                 {"FeatureEntry", 1, "key", Kind::string, false, ""},
                                 {"FeatureEntry", 2, "value", Kind::message, false, "Feature"},
                                 {"Features", 1, "feature", Kind::message, true, "FeatureEntry"},
                                 {"FloatList", 1, "value", Kind::f32, true, ""},
                                 {"Int64List", 1, "value", Kind::int64, true, ""}};
const wire::MessageSpec& spec(std::string_view name) {
  static const auto table = [] {
    std::array<wire::MessageSpec, 7> out;
    size_t n = 0;
    for (std::string_view m :
         {"BytesList", "Example", "Feature", "FeatureEntry", "Features", "FloatList", "Int64List"})
      out[n++] = wire::find_message(kFields, std::size(kFields), m);
    return out;
  }();
  for (const auto& m : table)
    if (m.name == name) return m;
  PELTON_CHECK(false, name);
}

Tensor feature(wire::Span message) {
  Tensor out(DType::u8, {0});
  for (wire::Reader r(message, spec("Feature")); uint32_t kind = r.next();) {
    if (kind == 1) {
      std::vector<std::string> values;
      for (wire::Reader list(r.message(), spec("BytesList")); list.next();) values.emplace_back(list.text());
      if (values.size() == 1) {  // one blob: an encoded file, or a text
        out = Tensor(DType::u8, {static_cast<int64_t>(values[0].size())});
        std::memcpy(out.mutable_data(), values[0].data(), values[0].size());
      } else {
        const int64_t n = static_cast<int64_t>(values.size());
        out = Tensor::of_strings({n}, std::move(values));
      }
    } else if (kind == 2) {
      std::vector<float> values;
      for (wire::Reader list(r.message(), spec("FloatList")); list.next();) list.append_to(values);
      out = Tensor::from<float>({static_cast<int64_t>(values.size())}, values);
    } else {
      std::vector<int64_t> values;
      for (wire::Reader list(r.message(), spec("Int64List")); list.next();) list.append_to(values);
      out = Tensor::from<int64_t>({static_cast<int64_t>(values.size())}, values);
    }
  }
  return out;
}

struct Entry {
  uint32_t file;
  int64_t offset, size;  // of the payload
};

class TfRecord : public Source {
 public:
  TfRecord(const Args& a, const std::string& base)
      : example_(a.boolean("example")),
        check_(a.boolean("check")),
        image_(a.text("image")),
        label_(a.text("label")) {
    for (const auto& p : expand_ranges(a.texts("files"), a.where())) {
      files_.push_back(std::make_unique<PositionedFile>(below(base, p)));
      const PositionedFile& f = *files_.back();
      auto read = [&](int64_t at, std::span<uint8_t> into) { f.read(at, into); };
      for (auto [offset, size] : tfrecord_index(f.size(), read, f.path()))
        entries_.push_back({static_cast<uint32_t>(files_.size() - 1), offset, size});
    }
    if (entries_.empty())
      fail(ErrorCode::not_found, "the files hold no records", files_.empty() ? a.where() : files_[0]->path());
  }
  int64_t size() const override { return static_cast<int64_t>(entries_.size()); }
  std::string identity() const override {
    std::string out = cat("tfrecord ", entries_.size());
    for (const auto& f : files_) append(out, cat(" ", f->size()));
    return out;
  }
  int64_t stored_bytes(int64_t index) const override { return entries_[static_cast<size_t>(index)].size; }
  Sample read(int64_t index) const override {
    const Entry& e = entries_[static_cast<size_t>(index)];
    const PositionedFile& f = *files_[e.file];
    Sample s;
    s.index = index;
    s.origin = {f.path(), cat("record ", index), e.offset};
    Tensor record = f.read_bytes(e.offset, e.size + 4);
    const uint8_t* b = record.as<uint8_t>();
    uint32_t stored;
    std::memcpy(&stored, b + e.size, 4);
    if (check_ && stored != masked_crc32c({b, static_cast<size_t>(e.size)}))
      fail(ErrorCode::bad_format, "the record's checksum is wrong", s.origin.str());
    if (!example_) {
      s.set("data", Tensor::borrow(DType::u8, {e.size}, b, std::make_shared<Tensor>(record)));
      return s;
    }
    with_place(s.origin.str(), [&] {
      fields(s, std::string_view(reinterpret_cast<const char*>(b), static_cast<size_t>(e.size)));
    });
    return s;
  }

 private:
  void fields(Sample& s, std::string_view payload) const {
    for (wire::Reader example(wire::whole(payload), spec("Example")); example.next();)
      for (wire::Reader all(example.message(), spec("Features")); all.next();) {
        std::string key;
        Tensor value(DType::u8, {0});
        for (wire::Reader entry(all.message(), spec("FeatureEntry")); uint32_t n = entry.next();) {
          if (n == 1)
            key = entry.text();
          else
            value = feature(entry.message());
        }
        if (key == image_) key = "image";
        if (key == label_) {
          key = "label";
          if (value.count() == 1) value = value.reshaped({});
        }
        s.set(key, std::move(value));
      }
  }

  bool example_, check_;
  std::string image_, label_;
  std::vector<std::unique_ptr<PositionedFile>> files_;
  std::vector<Entry> entries_;
};

}  // namespace

uint32_t masked_crc32c(Bytes b) {
  const CrcTables& t = crc_tables();
  uint32_t c = ~0u;
  size_t i = 0;
  for (; i + 8 <= b.size(); i += 8) {
    uint32_t low, high;
    std::memcpy(&low, b.data() + i, 4);
    std::memcpy(&high, b.data() + i + 4, 4);
    low ^= c;
    c = t[7][low & 255] ^ t[6][low >> 8 & 255] ^ t[5][low >> 16 & 255] ^ t[4][low >> 24] ^ t[3][high & 255] ^
        t[2][high >> 8 & 255] ^ t[1][high >> 16 & 255] ^ t[0][high >> 24];
  }
  for (; i < b.size(); ++i) c = t[0][(c ^ b[i]) & 255] ^ (c >> 8);
  c = ~c;
  return (c >> 15 | c << 17) + 0xa282ead8u;
}

std::vector<std::pair<int64_t, int64_t>> tfrecord_index(
    int64_t file_size, const std::function<void(int64_t, std::span<uint8_t>)>& read,
    const std::string& where) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (int64_t at = 0; at < file_size;) {
    const std::string place = cat(where, " at byte ", at);
    if (file_size - at < 12) fail(ErrorCode::bad_format, "the record header is cut short", place);
    uint8_t head[12];
    read(at, head);
    uint64_t size;
    uint32_t stored;
    std::memcpy(&size, head, 8);
    std::memcpy(&stored, head + 8, 4);
    if (stored != masked_crc32c({head, 8}))
      fail(ErrorCode::bad_format, "the checksum of a record's length is wrong", place,
           "the file is damaged, or not a TFRecord file");
    if (size > static_cast<uint64_t>(file_size - at - 12) ||
        static_cast<uint64_t>(file_size - at - 12) - size < 4)
      fail(ErrorCode::bad_format, cat("a record of ", size, " bytes runs past the end of the file"), place,
           "the file is cut short");
    out.emplace_back(at + 12, static_cast<int64_t>(size));
    at += 16 + static_cast<int64_t>(size);
  }
  return out;
}

std::string tfrecord_entry(std::string_view payload) {
  std::string out(8, '\0');
  const uint64_t size = payload.size();
  std::memcpy(out.data(), &size, 8);
  auto seal = [&](std::string_view s) {
    const uint32_t crc = masked_crc32c({reinterpret_cast<const uint8_t*>(s.data()), s.size()});
    out.append(reinterpret_cast<const char*>(&crc), 4);
  };
  seal(std::string(out));
  out += payload;
  seal(payload);
  return out;
}

std::vector<SourceKind> tfrecord_source_kinds() {
  using T = OptionType;
  return {
      {{"tfrecord",
        "TFRecord files; tf.train.Example features become fields, or field data u8 [bytes] for raw payloads",
        {{"files", T::texts, {}, "the files, in order; NAME{000..127} stands for a numbered range"},
         {"example", T::boolean, true, "payloads are tf.train.Example messages"},
         {"check", T::boolean, true, "verify the checksum of every payload"},
         {"image", T::text, "image/encoded", "the feature that becomes the field image"},
         {"label", T::text, "image/class/label", "the feature that becomes the field label"}}},
       [](const Args& a, const std::string& base) -> std::unique_ptr<Source> {
         return std::make_unique<TfRecord>(a, base);
       }}};
}

}  // namespace pelton::data
