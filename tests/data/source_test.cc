// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "data/gzip.h"
#include "data/source/source.h"
#include "data/source/tar_index.h"
#include "data/source/tfrecord.h"
#include "support/expect_error.h"
#include "support/skip.h"
#include "support/temp_dir.h"
#include "tensor/npy.h"
#include "tensor/proto_wire.h"

using namespace pelton;
using namespace pelton::data;
using test::expect_error;
using test::gzip;
using test::TempDir;

namespace {

std::unique_ptr<Source> open(const char* kind, const Options& o, const std::string& folder = "") {
  return make_source(kind, o, folder, "test");
}

std::string text_of(const Tensor& t) {
  return {static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes())};
}

}  // namespace

TEST_CASE("folder: classes by sub-folder, sorted; hidden files and other endings left out") {
  TempDir dir;
  for (const char* d : {"dog", "cat"}) std::filesystem::create_directory(dir / d);
  write_file(dir / "cat/b.jpg", "cat b");
  write_file(dir / "cat/a.JPG", "cat a");
  write_file(dir / "dog/x.png", "dog x");
  write_file(dir / "dog/.hidden.jpg", "no");
  auto s = open("folder", {{"path", dir.path()}});
  CHECK(s->size() == 3);
  CHECK(s->classes() == std::vector<std::string>{"cat", "dog"});
  CHECK(text_of(s->read(0).at("image")) == "cat a");
  CHECK(s->read(2).at("label").get_int(0) == 1);
  CHECK(open("folder", {{"path", dir.path()}, {"extensions", ".jpg"}})->size() == 2);
  CHECK(open("folder", {{"path", dir.path()}, {"classes", std::vector<std::string>{"dog", "cat"}}})
            ->read(0)
            .origin.file == dir / "dog/x.png");
  TempDir empty;
  expect_error(ErrorCode::not_found, {"no sub-folders", "labels = false"}, [&] {
    open("folder", {{"path", empty.path()}});
  });
  expect_error(ErrorCode::not_found, {"holds no files"}, [&] {
    open("folder", {{"path", empty.path()}, {"labels", false}});
  });
  expect_error(ErrorCode::not_found, {"no such folder"}, [&] {
    open("folder", {{"path", empty / "nothing"}});
  });
  std::filesystem::remove(dir / "dog/x.png");
  expect_error(ErrorCode::not_found, {"x.png"}, [&] { s->read(2); });
}

TEST_CASE("list: labels after a space or tab, comments, other roots") {
  TempDir dir;
  write_file(dir / "my picture.jpg", "p");
  write_file(dir / "list.txt", "# two\nmy picture.jpg 4\r\n\nmy picture.jpg\t5\n");
  auto s = open("list", {{"path", "list.txt"}}, dir.path());
  CHECK(s->size() == 2);
  CHECK(s->read(1).at("label").get_int(0) == 5);
  CHECK(text_of(s->read(0).at("image")) == "p");
  write_file(dir / "bad.txt", "a.jpg one\n");
  expect_error(ErrorCode::bad_format, {"'one' is not a label", "line 1"}, [&] {
    open("list", {{"path", dir / "bad.txt"}});
  });
}

TEST_CASE("real MNIST files, gzipped") {
  const std::string folder = "../shared/real/images/mnist/";
  if (!folder_exists(folder)) PELTON_SKIP("../shared/real is absent");
  auto s = open("mnist", {{"images", folder + "t10k-images-idx3-ubyte.gz"},
                          {"labels", folder + "t10k-labels-idx1-ubyte.gz"}});
  CHECK(s->size() == 10000);
  Sample first = s->read(0);
  CHECK(first.at("label").get_int(0) == 7);  // the well-known first test digit
  CHECK(first.at("image").dims() == Dims{28, 28, 1});
}

TEST_CASE("IDX and CIFAR damage is told") {
  TempDir dir;
  write_file(dir / "i", std::string("\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x01"
                                    "ab",
                                    18));
  write_file(dir / "l", std::string("\0\0\x08\x01\0\0\0\x02\x01\x0b", 10));
  expect_error(ErrorCode::bad_format, {"label 11 is outside 0 .. 9", "row 1"}, [&] {
    open("mnist", {{"images", dir / "i"}, {"labels", dir / "l"}});
  });
  CHECK(open("mnist", {{"images", dir / "i"}, {"labels", dir / "l"}, {"class_count", 12}})->size() == 2);
  write_file(dir / "i", std::string("\0\0\x08\x03\0\0\0\x09\0\0\0\x01\0\0\0\x01"
                                    "ab",
                                    18));
  expect_error(ErrorCode::bad_format, {"asks for 9 bytes, the file has 2"}, [&] {
    open("mnist", {{"images", dir / "i"}, {"labels", dir / "l"}});
  });
  std::string record(3073, '\0');
  record[0] = 3;
  record[1] = 10;  // red of pixel 0
  record[1 + 1024] = 20;
  record[1 + 2048] = 30;
  write_file(dir / "c.bin", record + record);
  auto s = open("cifar", {{"files", dir / "c.bin"}});
  CHECK(s->size() == 2);
  Sample first = s->read(1);
  CHECK(first.at("label").get_int(0) == 3);
  CHECK(first.at("image").get_int(0) == 10);
  CHECK(first.at("image").get_int(2) == 30);
  write_file(dir / "c.bin", record + "x");
  expect_error(ErrorCode::bad_format, {"3073-byte records", "3074 bytes"}, [&] {
    open("cifar", {{"files", dir / "c.bin"}});
  });
}

TEST_CASE("csv: quotes, missing cells, label column, compressed") {
  TempDir dir;
  const std::string text = "a,\"b, c\",y\n1,2.5,0\n\"3\",,1\n";
  for (const std::string& content : {text, gzip(text)}) {
    write_file(dir / "t.csv", content);
    auto s = open("csv", {{"path", dir / "t.csv"}, {"label", "y"}});
    CHECK(s->size() == 2);
    CHECK(to_doubles(s->read(0).at("data")) == std::vector<double>{1, 2.5});
    CHECK(std::isnan(s->read(1).at("data").get_double(1)));
    CHECK(s->read(1).at("label").get_int(0) == 1);
  }
  CHECK(to_doubles(open("csv", {{"path", dir / "t.csv"},
                                {"columns", std::vector<std::string>{"b, c"}},
                                {"missing", "zero"}})
                       ->read(1)
                       .at("data")) == std::vector<double>{0});
  expect_error(ErrorCode::bad_name, {"no column 'z'"}, [&] {
    open("csv", {{"path", dir / "t.csv"}, {"label", "z"}});
  });
  write_file(dir / "bad.csv", "a,b\n1,2\n1\n");
  expect_error(ErrorCode::bad_format, {"1 cells, the first one has 2", "at byte 8"}, [&] {
    open("csv", {{"path", dir / "bad.csv"}});
  });
  write_file(dir / "bad.csv", "a\n\"open\n");
  expect_error(ErrorCode::bad_format, {"never closed"}, [&] { open("csv", {{"path", dir / "bad.csv"}}); });
  write_file(dir / "word.csv", "a\nx\n");
  expect_error(ErrorCode::bad_format, {"'x' in column a is not a number"}, [&] {
    open("csv", {{"path", dir / "word.csv"}})->read(0);
  });
}

TEST_CASE("npy rows by position, and a file that shrinks") {
  TempDir dir;
  save_npy(dir / "a.npy", from_ints(DType::i32, {3, 2}, {1, 2, 3, 4, 5, 6}));
  auto s = open("npy", {{"path", dir / "a.npy"}, {"field", "v"}});
  CHECK(s->size() == 3);
  CHECK(to_ints(s->read(1).at("v")) == std::vector<int64_t>{3, 4});
  CHECK(s->read(1).at("v").dtype() == DType::i32);
  REQUIRE(truncate((dir / "a.npy").c_str(), 140) == 0);
  expect_error(ErrorCode::io, {"has 140 bytes, but had 152", "a.npy"}, [&] { s->read(2); });
  expect_error(ErrorCode::bad_format, {"asks for 3 rows"}, [&] { open("npy", {{"path", dir / "a.npy"}}); });
  write_file(dir / "r.bin", "0123456789");
  auto raw = open("raw", {{"path", dir / "r.bin"}, {"dims", 4}, {"dtype", "u8"}, {"skip_bytes", 2}});
  CHECK(raw->size() == 2);
  CHECK(text_of(raw->read(1).at("data")) == "6789");
  expect_error(ErrorCode::bad_shape, {"not a whole number of 4-byte samples"}, [&] {
    open("raw", {{"path", dir / "r.bin"}, {"dims", 4}, {"dtype", "u8"}});
  });
}

TEST_CASE("tar shards: several parts a sample, long names, ranges, gzip, damage") {
  TempDir dir;
  const std::string long_key = "deep/" + std::string(120, 'k');
  std::string a = tar_entry("x/0.jpg", "J0") + tar_entry("x/0.cls", "3\n") +
                  tar_entry("x/1.seg.txt", "hello") + tar_entry("x/1.jpg", std::string(700, 'j'));
  std::string b = tar_entry(long_key + ".jpg", "L") +
                  tar_entry(long_key + ".npy", format_npy(Tensor::from<float>({2}, {1, 2})));
  write_file(dir / "s-00.tar", a + std::string(1024, '\0'));
  write_file(dir / "s-01.tar", gzip(b + std::string(1024, '\0')));
  auto s = open("tar", {{"shards", "s-{00..01}.tar"}}, dir.path());
  CHECK(s->size() == 3);
  CHECK(s->read(0).at("label").get_int(0) == 3);
  CHECK(text_of(s->read(0).at("image")) == "J0");
  CHECK(s->read(1).at("image").count() == 700);
  CHECK(s->read(1).at("seg").strings()[0].size() == 5);
  Sample last = s->read(2);
  CHECK(last.at("npy").get_double(1) == 2);
  CHECK(last.origin.member == long_key);
  std::string bad = a;
  bad[1024 + 10] ^= 1;  // a byte of the second header's name
  write_file(dir / "bad.tar", bad);
  expect_error(ErrorCode::bad_format, {"checksum is wrong", "bad.tar at byte 1024"}, [&] {
    open("tar", {{"shards", dir / "bad.tar"}});
  });
  write_file(dir / "cut.tar", a.substr(0, a.size() - 512));
  expect_error(ErrorCode::bad_format, {"700 bytes runs past the end", "cut short"}, [&] {
    open("tar", {{"shards", dir / "cut.tar"}});
  });
  expect_error(ErrorCode::usage, {"is not a range"}, [&] { open("tar", {{"shards", "a{9..1}.tar"}}); });
}

TEST_CASE("the published check value of CRC-32C") {
  const std::string digits = "123456789";
  const uint32_t crc = 0xe3069283u;
  CHECK(masked_crc32c({reinterpret_cast<const uint8_t*>(digits.data()), 9}) ==
        (crc >> 15 | crc << 17) + 0xa282ead8u);
}

TEST_CASE("TFRecord: examples, raw payloads, checksums") {
  TempDir dir;
  wire::Writer bytes, list, entry, features, example, ints, entry2;
  bytes.bytes(1, "JPEG");
  list.bytes(1, bytes.data());
  entry.bytes(1, "image/encoded");
  entry.bytes(2, list.data());
  ints.ints(1, {42});
  wire::Writer feature2;
  feature2.bytes(3, ints.data());
  entry2.bytes(1, "image/class/label");
  entry2.bytes(2, feature2.data());
  features.bytes(1, entry.data());
  features.bytes(1, entry2.data());
  example.bytes(1, features.data());
  const std::string record = tfrecord_entry(example.data());
  write_file(dir / "a.tfrecord", record + record);
  auto s = open("tfrecord", {{"files", dir / "a.tfrecord"}});
  CHECK(s->size() == 2);
  CHECK(text_of(s->read(1).at("image")) == "JPEG");
  CHECK(s->read(1).at("label").get_int(0) == 42);
  CHECK(s->read(1).at("label").rank() == 0);
  CHECK(open("tfrecord", {{"files", dir / "a.tfrecord"}, {"example", false}})->read(0).at("data").count() ==
        static_cast<int64_t>(example.data().size()));
  std::string bad = record + record;
  bad[record.size() + 14] ^= 1;
  write_file(dir / "a.tfrecord", bad);
  auto damaged = open("tfrecord", {{"files", dir / "a.tfrecord"}});
  CHECK(text_of(damaged->read(0).at("image")) == "JPEG");
  expect_error(ErrorCode::bad_format, {"record's checksum is wrong", "record 1"}, [&] { damaged->read(1); });
  write_file(dir / "a.tfrecord", record.substr(0, record.size() - 3));
  expect_error(ErrorCode::bad_format, {"runs past the end"}, [&] {
    open("tfrecord", {{"files", dir / "a.tfrecord"}});
  });
}

TEST_CASE("COCO annotations whose numbers are no integers are refused with the file") {
  TempDir dir;
  const auto read = [&](const std::string& width, const std::string& crowd) {
    write_file(dir / "a.json",
               cat(R"({"images": [{"id": 7, "file_name": "a.jpg", "width": )", width,
                   R"(, "height": 10}], "categories": [{"id": 3, "name": "cat"}], "annotations": )"
                   R"([{"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2, 5, 6], "iscrowd": )",
                   crowd, "}]}"));
    return open("coco", {{"images", "."}, {"annotations", "a.json"}}, dir.path())->size();
  };
  CHECK(read("20.0", "0") == 1);
  expect_error(ErrorCode::bad_format, {"a.json", "whole number", "2e+48"}, [&] { read("2e48", "0"); });
  expect_error(ErrorCode::bad_format, {"a.json", "whole number", "20.5"}, [&] { read("20.5", "0"); });
  expect_error(ErrorCode::bad_format, {"a.json", "whole number", "1e+30"}, [&] { read("20", "1e30"); });
}

TEST_CASE("real COCO-like annotations") {
  const std::string folder = "../shared/real/images/coco-like/";
  if (!folder_exists(folder)) PELTON_SKIP("../shared/real is absent");
  auto s = open("coco",
                {{"images", folder + "images"}, {"annotations", folder + "instances.json"}, {"masks", true}});
  CHECK(s->size() == 14);
  CHECK(s->classes()[0] == "Apple");
  int64_t objects = 0;
  for (int64_t i = 0; i < s->size(); ++i) {
    Sample sample = s->read(i);
    const Tensor boxes = sample.at("boxes"), masks = sample.at("masks");
    objects += boxes.dims()[0];
    for (int64_t k = 0; k < boxes.dims()[0]; ++k) {
      // A mask lies inside its box, give or take the pixel that the box is rounded by.
      const float* b = boxes.as<float>() + 4 * k;
      int64_t outside = 0;
      for (int64_t y = 0; y < masks.dims()[1]; ++y)
        for (int64_t x = 0; x < masks.dims()[2]; ++x)
          outside += masks.as<uint8_t>()[(k * masks.dims()[1] + y) * masks.dims()[2] + x] &&
                     !(static_cast<float>(x) >= b[0] - 2 && static_cast<float>(x) <= b[2] + 2 &&
                       static_cast<float>(y) >= b[1] - 2 && static_cast<float>(y) <= b[3] + 2);
      CHECK(outside == 0);
    }
  }
  CHECK(objects == 23);
}

TEST_CASE("concatenated and mixed sources") {
  auto part = [](int64_t n, int64_t base) {
    return from_function(
        n,
        [base](int64_t i) {
          Sample s;
          s.set("x", Tensor::scalar<int64_t>(base + i));
          return s;
        },
        "part");
  };
  std::vector<std::unique_ptr<Source>> parts;
  parts.push_back(part(2, 0));
  parts.push_back(part(3, 100));
  auto all = concatenate(std::move(parts));
  CHECK(all->size() == 5);
  CHECK(all->read(2).at("x").get_int(0) == 100);
  CHECK(all->read(4).index == 4);
  parts.clear();
  parts.push_back(part(2, 0));
  parts.push_back(part(3, 100));
  auto mixed = mix(std::move(parts), {1, 3}, 4000, 7);
  int64_t second = 0;
  for (int64_t i = 0; i < 4000; ++i) second += mixed->read(i).at("x").get_int(0) >= 100;
  CHECK(second == doctest::Approx(3000).epsilon(0.03));
}

TEST_CASE("kinds that do not exist") {
  expect_error(ErrorCode::usage, {"no source kind 'foldr'", "did you mean 'folder'?"},
               [] { open("foldr", {}); });
  expect_error(ErrorCode::unsupported_op, {"Parquet"}, [] { open("parquet", {}); });
}
