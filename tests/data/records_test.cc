// SPDX-License-Identifier: Apache-2.0
// Sources of records: token files, RecordIO, LMDB.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "data/source/datum.h"
#include "data/source/http.h"
#include "data/source/lmdb_index.h"
#include "data/source/source.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace pelton;
using namespace pelton::data;
using test::expect_error;
using test::TempDir;

namespace {

std::unique_ptr<Source> open(const char* kind, const Options& o, const std::string& folder) {
  return make_source(kind, o, folder, "test");
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string text_of(const Tensor& t) {
  return {static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes())};
}

// A record; a payload that holds the magic number at a multiple of 4 is cut there, as writers do.
std::string recordio(const std::string& payload) {
  const uint32_t magic = 0xced7230a;
  const std::string mark(reinterpret_cast<const char*>(&magic), 4);
  std::vector<std::string> parts{""};
  for (size_t at = 0; at < payload.size();) {
    if (payload.compare(at, 4, mark) == 0) {
      parts.emplace_back();
      at += 4;
      continue;
    }
    parts.back() += payload.substr(at, 4);
    at += 4;
  }
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    const uint32_t kind = parts.size() == 1 ? 0 : i == 0 ? 1 : i + 1 == parts.size() ? 3 : 2;
    const uint32_t word = kind << 29 | static_cast<uint32_t>(parts[i].size());
    out += mark + std::string(reinterpret_cast<const char*>(&word), 4) + parts[i];
    out.append((4 - parts[i].size() % 4) % 4, '\0');
  }
  return out;
}

std::string image_record(const std::vector<float>& labels, float label, uint64_t id,
                         const std::string& image) {
  std::string out = bytes_of<uint32_t>({static_cast<uint32_t>(labels.size())}) + bytes_of<float>({label}) +
                    bytes_of<uint64_t>({id, 0});
  return out + bytes_of(labels) + image;
}

std::string varint(uint64_t v) {
  std::string out;
  for (; v > 127; v >>= 7) out += static_cast<char>(v | 128);
  return out + static_cast<char>(v);
}
std::string field(int number, uint64_t v) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(v);
}
std::string field(int number, const std::string& v) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(v.size()) + v;
}

}  // namespace

TEST_CASE("tokens: windows with labels moved on by one, across files") {
  TempDir dir;
  write_file(dir / "a.bin", bytes_of<uint16_t>({1, 2, 3, 4, 5, 6, 7}));  // 2 windows of 3
  write_file(dir / "b.bin", bytes_of<uint16_t>({9, 8, 7, 60000, 5}));
  const auto s =
      open("tokens", {{"files", std::vector<std::string>{"a.bin", "b.bin"}}, {"length", 3}}, dir.path());
  REQUIRE(s->size() == 3);
  const Sample second = s->read(1), third = s->read(2);
  CHECK(to_ints(second.fields[0].second) == std::vector<int64_t>{4, 5, 6});
  CHECK(to_ints(second.fields[1].second) == std::vector<int64_t>{5, 6, 7});
  CHECK(to_ints(third.fields[1].second) == std::vector<int64_t>{8, 7, 60000});
  CHECK(third.origin.file.ends_with("b.bin"));
  expect_error(ErrorCode::bad_format, {"10 bytes", "i64", "'dtype'"}, [&] {
    open("tokens", {{"files", "b.bin"}, {"length", 3}, {"dtype", "i64"}}, dir.path());
  });
  expect_error(ErrorCode::bad_format, {"5 tokens", "fewer than one window of 6"}, [&] {
    open("tokens", {{"files", "b.bin"}, {"length", 5}}, dir.path());
  });
}

TEST_CASE("recordio: image records, several labels, payloads that hold the magic number") {
  TempDir dir;
  const std::string magic = bytes_of<uint32_t>({0xced7230a});
  const std::string cut = "abcd" + magic + "efgh" + magic + "i";
  write_file(dir / "a.rec",
             recordio(image_record({}, 3, 77, "jpeg")) + recordio(image_record({1.5f, 2}, 0, 5, cut)));
  const auto s = open("recordio", {{"files", "a.rec"}}, dir.path());
  REQUIRE(s->size() == 2);
  Sample a = s->read(0), b = s->read(1);
  CHECK(a.at("label").get_int(0) == 3);
  CHECK(a.at("id").get_int(0) == 77);
  CHECK(text_of(a.at("image")) == "jpeg");
  CHECK(to_doubles(b.at("label")) == std::vector<double>{1.5, 2});
  CHECK(text_of(b.at("image")) == cut);
  const auto raw = open("recordio", {{"files", "a.rec"}, {"image", false}}, dir.path());
  CHECK(raw->read(1).fields[0].second.count() == 24 + 8 + 17);

  for (float label : {std::numeric_limits<float>::quiet_NaN(), 1e30f, 0.5f}) {  // no class of a whole number
    write_file(dir / "c.rec", recordio(image_record({}, label, 1, "jpeg")));
    const Tensor kept = open("recordio", {{"files", "c.rec"}}, dir.path())->read(0).at("label");
    CHECK(kept.dtype() == DType::f32);
    CHECK(std::isnan(kept.get_double(0)) == std::isnan(label));
  }

  const std::string good = recordio(image_record({}, 3, 77, "jpeg"));
  auto broken = [&](const std::string& content, std::initializer_list<const char*> words) {
    write_file(dir / "b.rec", content);
    expect_error(ErrorCode::bad_format, words, [&] {
      open("recordio", {{"files", "b.rec"}}, dir.path())->read(0);
    });
  };
  broken(good.substr(0, good.size() - 8), {"runs past the end", "byte 0"});
  broken(good + "abc", {"header is cut short", cat("byte ", good.size()).c_str()});
  broken(good + "12345678", {"magic number"});
  broken(recordio("short"), {"5 bytes has no header", "image = false"});
  const std::string parts = recordio("abcd" + magic + "efgh");
  broken(parts.substr(0, 12), {"no end"});
  broken(parts.substr(12), {"kind 3", "out of order"});
  broken(recordio(bytes_of<uint32_t>({1000}) + std::string(20, '\0')), {"names 1000 labels"});
}

TEST_CASE("Datum messages: raw planes become pixels with red first, encoded ones stay files") {
  Sample s;
  read_datum(field(1, 3) + field(2, 1) + field(3, 2) + field(4, std::string("BbGgRr")) + field(5, 9), s);
  CHECK(text_of(s.at("image")) == "RGBrgb");
  CHECK(s.at("image").dims() == Dims{1, 2, 3});
  CHECK(s.at("label").get_int(0) == 9);
  Sample e;
  read_datum(field(4, std::string("file")) + field(7, 1), e);
  CHECK(text_of(e.at("image")) == "file");
  Sample f;
  read_datum(field(1, 1) + field(2, 1) + field(3, 2) + field(6, bytes_of<float>({0.5f, 2})), f);
  CHECK(to_doubles(f.at("data")) == std::vector<double>{0.5, 2});
  Sample bad;
  expect_error(ErrorCode::bad_format, {"3x1x2", "5 bytes"}, [&] {
    read_datum(field(1, 3) + field(2, 1) + field(3, 2) + field(4, std::string("abcde")), bad);
  });
  expect_error(ErrorCode::bad_format, {"0x1x2"}, [&] { read_datum(field(2, 1) + field(3, 2), bad); });
}

TEST_CASE("lmdb: records in order of their keys, in pages of their own where they are large") {
  TempDir dir;
  const std::string content = expanded(read_file("tests/data/expect/records.mdb.gz"), "test");
  write_file(dir / "data.mdb", content);
  for (const char* path : {".", "data.mdb"}) {
    const auto s = open("lmdb", {{"path", path}, {"datum", false}}, dir.path());
    REQUIRE(s->size() == 79);
    for (int64_t i : {0, 1, 7, 33, 40, 78}) {
      Sample r = s->read(i);
      const int64_t length = i == 7 ? 9000 : i == 40 ? 5000 : 20 * i;
      CHECK(text_of(r.at("data")) == std::string(static_cast<size_t>(length), static_cast<char>(i)));
      CHECK(r.origin.member == cat("key 000", i < 10 ? "0" : "", i));
      CHECK(s->stored_bytes(i) == length);
    }
  }
  expect_error(ErrorCode::not_found, {"absent"}, [&] { open("lmdb", {{"path", "absent"}}, dir.path()); });
  auto index = [&](const std::string& file) {
    const auto n = static_cast<int64_t>(file.size());
    auto read = [&](int64_t at, std::span<uint8_t> into) {
      REQUIRE(at >= 0);
      REQUIRE(at + std::ssize(into) <= n);
      std::memcpy(into.data(), file.data() + at, into.size());
    };
    std::vector<LmdbRecord> records = lmdb_index(n, read, "test");
    for (const LmdbRecord& r : records) REQUIRE((r.offset >= 0 && r.size >= 0 && r.offset + r.size <= n));
    return records.size();
  };
  auto broken = [&](std::initializer_list<const char*> words, const std::string& file) {
    expect_error(ErrorCode::bad_format, words, [&] { index(file); });
  };
  CHECK(index(content) == 79);
  broken({"not an LMDB file", "data.mdb"}, std::string(9000, 'x'));
  broken({"not an LMDB file"}, "");
  auto cut = content;
  cut.resize(cut.size() - 8192);
  broken({"leads to page"}, cut);
  // All pointers of a leaf lead to its last node, which is its largest.
  int leaves = 0;
  for (size_t page = 2; page * 4096 < content.size(); ++page) {
    std::string crafted = content;
    char* p = crafted.data() + page * 4096;
    uint16_t kind = 0, end = 0;
    std::memcpy(&kind, p + 10, 2);
    std::memcpy(&end, p + 12, 2);
    if (kind != 2 || end < 20) continue;
    for (char* at = p + 16; at < p + end - 2; at += 2) std::memcpy(at, p + end - 2, 2);
    broken({"nodes overlap", cat("page ", page).c_str()}, crafted);
    ++leaves;
  }
  CHECK(leaves > 0);
  // Any damage is told, or does no harm: every byte of the headers and of the first nodes, at several values.
  for (size_t page = 0; page * 4096 < content.size(); ++page)
    for (size_t at = 0; at < 400; at += page < 2 ? 1 : 3)
      for (int flip : {1, 0x40, 0xff}) {
        std::string damaged = content;
        damaged[page * 4096 + at] = static_cast<char>(damaged[page * 4096 + at] ^ flip);
        try {
          index(damaged);
        } catch (const Error& e) {
          REQUIRE((e.code() == ErrorCode::bad_format || e.code() == ErrorCode::unsupported_version ||
                   e.code() == ErrorCode::unsupported_op));
        }
      }
}

TEST_CASE("private addresses are told from public ones") {
  for (const char* a : {"127.0.0.1", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1",
                        "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1", "::1", "::", "fe80::1",
                        "fd00::1", "ff02::1", "::ffff:127.0.0.1", "64:ff9b::10.0.0.1", "nonsense"}) {
    CAPTURE(a);
    CHECK(is_private_address(a));
  }
  for (const char* a :
       {"8.8.8.8", "172.32.0.1", "172.15.0.1", "192.167.1.1", "2001:4860:4860::8888", "::ffff:8.8.8.8"}) {
    CAPTURE(a);
    CHECK_FALSE(is_private_address(a));
  }
}
