// SPDX-License-Identifier: Apache-2.0
// Every file of shared/real/images against stored digests of what Pillow reads, and hand-made bytes.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "data/codec/jpeg.h"
#include "data/image/lazy_image.h"
#include "support/expect_error.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::data;

namespace {

const std::string kImages = "../shared/real/images/";

Tensor read_bytes(const std::string& path) {
  auto text = std::make_shared<std::string>(read_file(path));
  return Tensor::borrow(DType::u8, {static_cast<int64_t>(text->size())}, text->data(), text);
}

Tensor bytes_of(std::string_view text) {
  return Tensor::from<uint8_t>({static_cast<int64_t>(text.size())},
                               std::vector<uint8_t>(text.begin(), text.end()));
}

std::string digest(const Tensor& t) {
  return sha256(std::span(static_cast<const std::byte*>(t.data()), static_cast<size_t>(t.bytes())))
      .str()
      .substr(0, 16);
}

nlohmann::json expectations() {
  return nlohmann::json::parse(read_file("tests/data/expect/pixels.json"));
}

Tensor decode(std::string_view bytes, DecodeOptions options = {}) {
  Tensor t = bytes_of(bytes);
  return decode_image(Bytes(t.as<uint8_t>(), static_cast<size_t>(t.count())), options, "sample 7");
}

}  // namespace

TEST_CASE("every real image has the pixels that Pillow gives it, or both refuse it") {
  if (!folder_exists(kImages)) PELTON_SKIP("../shared/real is absent");
  // A wrong checksum inside the file: Pillow takes the pixels, Pelton refuses damage that it can prove.
  const std::set<std::string> refused_here = {"pngsuite/xcsn0g01.png"};
  int read = 0, refused = 0;
  const nlohmann::json all = expectations();
  for (const auto& [name, expected] : all["decode"].items()) {
    CAPTURE(name);
    std::string found;
    try {
      Tensor pixels = LazyImage(read_bytes(kImages + name), {}, Match::none, name).pixels();
      found = cat(pixels.dims()[1], "x", pixels.dims()[0], " ", digest(pixels));
      ++read;
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find(name) != std::string::npos);
      CHECK(e.code() != ErrorCode::internal);
      ++refused;
    }
    if (expected.is_null() || refused_here.count(name))
      CHECK(found == "");
    else
      CHECK(found == expected.get<std::string>());
  }
  CHECK(read == 412);
  CHECK(refused > 10);
}

TEST_CASE("exact modes give the pixels of Pillow, torchvision and OpenCV") {
  if (!folder_exists(kImages)) PELTON_SKIP("../shared/real is absent");
  const nlohmann::json all = expectations();
  for (const auto& c : all["resize"]) {
    const std::string match = c[1], filter = c[2], text = c.dump();
    CAPTURE(text);
    constexpr const char* names[] = {"nearest", "box", "linear", "hamming", "cubic", "lanczos"};
    const size_t at = static_cast<size_t>(std::find(names, names + 6, filter) - names);
    LazyImage image(read_bytes(kImages + c[0].get<std::string>()), {},
                    match == "pillow"   ? Match::pillow
                    : match == "opencv" ? Match::opencv
                                        : Match::torchvision,
                    c[0]);
    image.crop({c[4], c[5], c[6], c[7]});
    image.resize(c[8], c[9], static_cast<Filter>(at), c[3] != 0);
    CHECK(digest(image.pixels()) == c[10].get<std::string>());
  }
}

TEST_CASE("a region holds the same pixels as the whole picture") {
  if (!folder_exists(kImages)) PELTON_SKIP("../shared/real is absent");
  for (const char* name : {"jpeg-subsampling/420-odd-both.jpg", "odd/pillow-hopper.jpg",
                           "jpeg-reference/progressive3.jpg", "jpeg-subsampling/440.jpg"}) {
    CAPTURE(name);
    Tensor bytes = read_bytes(kImages + name);
    Bytes b(bytes.as<uint8_t>(), static_cast<size_t>(bytes.count()));
    Tensor whole = jpeg_decode(b, {}, name);
    const int w = static_cast<int>(whole.dims()[1]), h = static_cast<int>(whole.dims()[0]),
              c = static_cast<int>(whole.dims()[2]);
    for (Rect r : {Rect{w / 3, h / 3, w / 2 + 1, h / 2 + 1}, Rect{0, h / 2, w, h}, Rect{w / 2, 0, w, 1}}) {
      Rect at;
      Tensor part = jpeg_decode_region(b, r, {}, name, &at);
      int different = 0;
      for (int y = r.y0; y < r.y1; ++y)
        for (int x = r.x0 * c; x < r.x1 * c; ++x)
          different += part.as<uint8_t>()[(y - at.y0) * part.dims()[1] * c + x - at.x0 * c] !=
                       whole.as<uint8_t>()[y * w * c + x];
      CHECK(different == 0);
    }
  }
}

TEST_CASE("odd files are refused with their name and reason") {
  using test::expect_error;
  expect_error(ErrorCode::bad_format, {"empty", "sample 7"}, [] { decode(""); });
  expect_error(ErrorCode::bad_format, {"GIF", "sample 7"}, [] { decode("GIF89a....."); });
  expect_error(ErrorCode::bad_format, {"Git LFS"},
               [] { decode("version https://git-lfs.github.com/spec/v1\n"); });
  expect_error(ErrorCode::unsupported_op, {"lossless Huffman JPEG"}, [] {
    decode(std::string_view("\xff\xd8\xff\xc3\x00\x0b\x08\x00\x10\x00\x10\x01\x01\x11\x00\xff\xda", 17));
  });
  expect_error(ErrorCode::unsupported_op, {"12-bit JPEG"}, [] {
    decode(std::string_view("\xff\xd8\xff\xc1\x00\x0b\x0c\x00\x10\x00\x10\x01\x01\x11\x00\xff\xda", 17));
  });
  expect_error(ErrorCode::limit, {"60000x60000", "above the limit"},
               [] { decode("P5 60000 60000 255\nxx"); });
  expect_error(ErrorCode::bad_format, {"cut short", "2 bytes of 16"}, [] { decode("P5 4 4 255\nxx"); });
  expect_error(ErrorCode::unsupported_op, {"PAM"}, [] { decode("P7\nWIDTH 1\n"); });
}

TEST_CASE("portable maps of every kind") {
  auto values = [](std::string_view s, Colour colour = Colour::unchanged) {
    return to_ints(decode(s, {.colour = colour}));
  };
  CHECK(values("P1\n# two rows\n2 2\n10\n0 1") == std::vector<int64_t>{0, 255, 255, 0});
  CHECK(values("P2 2 1 15\n0 15") == std::vector<int64_t>{0, 255});
  CHECK(values("P3 1 1 255 1 2 3") == std::vector<int64_t>{1, 2, 3});
  CHECK(values(std::string_view("P4 3 1\n\xa0", 8)) == std::vector<int64_t>{0, 255, 0});
  CHECK(values(std::string_view("P5 1 1 65535\n\x12\x34", 15)) == std::vector<int64_t>{0x1234});
  CHECK(values(std::string_view("P5 1 1 65535\n\x12\x34", 15), Colour::rgb) ==
        std::vector<int64_t>{0x12, 0x12, 0x12});
  CHECK(values(std::string_view("P6 1 1 255\n\x01\x02\x03", 14), Colour::gray) == std::vector<int64_t>{2});
}

TEST_CASE("cut files can be filled on request") {
  if (!folder_exists(kImages)) PELTON_SKIP("../shared/real is absent");
  Tensor bytes = read_bytes(kImages + "odd/pillow-truncated_jpeg.jpg");
  Bytes b(bytes.as<uint8_t>(), static_cast<size_t>(bytes.count()));
  test::expect_error(ErrorCode::bad_format, {"cut short", "truncated = \"fill\""},
                     [&] { decode_image(b, {}, "x.jpg"); });
  CHECK(decode_image(b, {.fill_truncated = true}, "x.jpg").rank() == 3);
}

TEST_CASE("EXIF of either byte order tells the orientation") {
  const std::vector<uint8_t> file = jpeg_encode(Tensor::zeros(DType::u8, {8, 16, 3}), 90);
  auto with = [&](std::string_view exif) {  // as the first segment
    std::string text(file.begin(), file.end());
    text.insert(2, cat("\xff\xe1", std::string(1, '\0'), static_cast<char>(exif.size() + 8), "Exif",
                       std::string(2, '\0'), exif));
    return text;
  };
  using namespace std::string_view_literals;
  // One entry: tag 0x0112, SHORT, one value.
  const std::string_view little = "II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"sv,
                         big = "MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0"sv;
  for (const std::string_view exif : {little, big}) {
    CAPTURE(exif[0]);
    CHECK(decode(with(exif)).dims() == Dims{16, 8, 3});
  }
  CHECK(decode(with("XX"sv)).dims() == Dims{8, 16, 3});
}

TEST_CASE("the eight orientations show the same upright picture") {
  Tensor upright = Tensor::from<uint8_t>({2, 3, 1}, {1, 2, 3, 4, 5, 6});
  const std::vector<std::vector<int64_t>> stored = {
      {1, 2, 3, 4, 5, 6}, {3, 2, 1, 6, 5, 4}, {6, 5, 4, 3, 2, 1}, {4, 5, 6, 1, 2, 3},
      {1, 4, 2, 5, 3, 6}, {3, 6, 2, 5, 1, 4}, {6, 3, 5, 2, 4, 1}, {4, 1, 5, 2, 6, 3}};
  for (int o = 1; o <= 8; ++o) {
    CAPTURE(o);
    Tensor in =
        from_ints(DType::u8, o >= 5 ? Dims{3, 2, 1} : Dims{2, 3, 1}, stored[static_cast<size_t>(o - 1)]);
    CHECK(to_ints(oriented(in, o)) == to_ints(upright));
    Geometry g = Geometry::whole(static_cast<int>(in.dims()[1]), static_cast<int>(in.dims()[0]));
    g.orient(o);
    CHECK(g.out_width == 3);
  }
}
