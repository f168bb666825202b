// SPDX-License-Identifier: Apache-2.0
// Stages that join samples, the cache, and zooming out.
#include <doctest/doctest.h>

#include <atomic>
#include <set>

#include "data/pipeline.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::data;
using test::expect_error;

namespace {

// Picture i is 40 x 30 pixels of the level 20 * i + 10, with one object: the box (10, 5, 30, 25), its mask,
// and a key point at its centre. `reads` counts.
std::shared_ptr<const Source> levels(int64_t n, std::atomic<int>* reads = nullptr, bool masks = true) {
  return from_function(
      n,
      [=](int64_t i) {
        if (reads) ++*reads;
        Sample s;
        s.set("image", Tensor::full(DType::u8, {30, 40, 3}, static_cast<double>(20 * i + 10)));
        s.set("boxes", Tensor::from<float>({1, 4}, {10, 5, 30, 25}));
        s.set("box_labels", Tensor::from<int64_t>({1}, {i}));
        s.set("keypoints", Tensor::from<float>({1, 1, 3}, {20, 15, 1}));
        if (masks) {
          Tensor m = Tensor::zeros(DType::u8, {1, 30, 40});
          for (int y = 5; y < 25; ++y)
            for (int x = 10; x < 30; ++x) m.as_mutable<uint8_t>()[y * 40 + x] = 1;
          s.set("masks", std::move(m));
        }
        return s;
      },
      "levels");
}

PipelineSpec with(std::vector<StageSpec> stages) {
  PipelineSpec p;
  p.seed = 5;
  p.bad_samples = "raise";
  p.stages = {{"decode", {}, ""}};
  for (StageSpec& s : stages) p.stages.push_back(std::move(s));
  return p;
}

}  // namespace

TEST_CASE("mosaic: four pictures meet, with the objects of all four where they are to be seen") {
  const Pipeline p(with({{"mosaic", {{"size", std::vector<double>{48, 64}}}, ""}}), levels(8), {});
  std::set<std::pair<int64_t, int64_t>> corners;
  for (int64_t index = 0; index < 20; ++index) {
    Sample s = p.make_sample(index % 8, index);
    const Tensor pixels = s.picture().pixels(), boxes = s.at("boxes"), masks = s.at("masks");
    REQUIRE(pixels.dims() == Dims{48, 64, 3});
    const uint8_t* v = pixels.as<uint8_t>();
    auto level = [&](int64_t x, int64_t y) { return (v[(y * 64 + x) * 3] - 10) / 20; };
    CHECK(level(0, 0) == index % 8);
    int64_t cx = 1, cy = 1;
    while (cx < 64 && level(cx, 0) == level(0, 0)) ++cx;
    while (cy < 48 && level(0, cy) == level(0, 0)) ++cy;
    corners.emplace(cx, cy);
    CHECK(boxes.dims()[0] <= 4);
    CHECK(masks.dims() == Dims{boxes.dims()[0], 48, 64});
    for (int64_t k = 0; k < boxes.dims()[0]; ++k) {
      const float* b = boxes.as<float>() + 4 * k;
      const int64_t x = static_cast<int64_t>((b[0] + b[2]) / 2), y = static_cast<int64_t>((b[1] + b[3]) / 2);
      CHECK(level(x, y) == s.at("box_labels").get_int(k));
      CHECK(masks.as<uint8_t>()[(k * 48 + y) * 64 + x] == 1);
      CHECK(b[0] >= 0);
      CHECK(b[2] <= 64);
    }
    CHECK(p.make_sample(index % 8, index).picture().pixels().same_bytes(pixels));
  }
  CHECK(corners.size() > 10);
  Sample alone = Pipeline(with({{"mosaic", {{"size", 16}, {"probability", coin(0)}}, ""}}), levels(8), {})
                     .make_sample(3, 0);
  CHECK(alone.picture().pixels().dims() == Dims{16, 16, 3});
  CHECK(alone.picture().pixels().as<uint8_t>()[100] == 70);
  expect_error(ErrorCode::usage, {"'centre'", "low <= high"}, [] {
    Pipeline(with({{"mosaic", {{"size", 16}, {"centre", std::vector<double>{0.5, 0.2}}}, ""}}), levels(8),
             {});
  });
}

TEST_CASE("copy_paste: objects come with their pixels, and what they hide goes") {
  // All objects lie at the same place, so the own one is hidden whenever another comes.
  const Pipeline p(with({{"copy_paste", {{"share", 1}}, ""}}), levels(8), {});
  int came = 0;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    Sample s = p.make_sample(2, epoch);
    const Tensor pixels = s.picture().pixels();
    REQUIRE(s.at("boxes").dims() == Dims{1, 4});
    const int64_t label = s.at("box_labels").get_int(0);
    came += label != 2;
    CHECK(pixels.as<uint8_t>()[(15 * 40 + 20) * 3] == 20 * label + 10);
    CHECK(pixels.as<uint8_t>()[0] == 50);
  }
  CHECK(came > 10);
  // Moved aside, the own object keeps what is not hidden.
  Sample moved =
      Pipeline(with({{"crop", {{"size", std::vector<double>{30, 40}}, {"x", 0.5}}, ""},
                     {"affine", {{"translate_x", choice({-0.25, 0.25})}, {"filter", "nearest"}}, ""},
                     {"copy_paste", {{"share", 1}, {"visible", 0.3}}, ""}}),
               levels(8), {})
          .make_sample(1, 0);
  CHECK(moved.at("boxes").dims()[0] >= 1);
  CHECK(moved.at("masks").dims()[0] == moved.at("boxes").dims()[0]);
  Sample boxed =
      Pipeline(with({{"copy_paste", {{"share", 1}}, ""}}), levels(8, nullptr, false), {}).make_sample(2, 1);
  CHECK(boxed.at("boxes").dims()[0] == 1);
  expect_error(ErrorCode::bad_name, {"no field 'boxes'"}, [] {
    const Pipeline plain(with({{"copy_paste", {}, ""}}),
                         from_function(
                             2,
                             [](int64_t) {
                               Sample s;
                               s.set("image", Tensor::zeros(DType::u8, {4, 4, 3}));
                               return s;
                             },
                             "plain"),
                         {});
    plain.make_sample(0, 0);
  });
}

TEST_CASE("paste: the picture lies whole in a larger one, and its box with it") {
  const Pipeline p(with({{"paste", {{"fill", 255}}, ""}}), levels(3), {});
  double least = 9, most = 0;
  for (int64_t epoch = 0; epoch < 60; ++epoch) {
    Sample s = p.make_sample(0, epoch);
    const int w = s.picture().width(), h = s.picture().height();
    least = std::min(least, w / 40.0), most = std::max(most, w / 40.0);
    const Tensor pixels = s.picture().pixels();
    int64_t own = 0;
    for (int64_t i = 0; i < pixels.count(); i += 3) own += pixels.as<uint8_t>()[i] == 10;
    CHECK(own == 1200);
    const float* b = s.at("boxes").as<float>();
    CHECK(b[2] - b[0] == 20);
    CHECK(pixels.as<uint8_t>()[(static_cast<int64_t>(b[1]) * w + static_cast<int64_t>(b[0])) * 3] == 10);
    CHECK(s.at("masks").dims() == Dims{1, h, w});
  }
  CHECK(least < 1.5);
  CHECK(most > 3.5);
}

TEST_CASE("flips may swap the names of left and right key points") {
  auto two = from_function(
      1,
      [](int64_t) {
        Sample s;
        s.set("image", Tensor::zeros(DType::u8, {10, 20, 3}));
        s.set("keypoints", Tensor::from<float>({1, 3, 3}, {1, 1, 1, 4, 2, 1, 15, 3, 2}));
        return s;
      },
      "two");
  Sample s =
      Pipeline(with({{"flip", {{"horizontal", true}, {"swap_keypoints", std::vector<double>{1, 2}}}, ""}}),
               std::shared_ptr<const Source>(std::move(two)), {})
          .make_sample(0, 0);
  CHECK(to_doubles(s.at("keypoints")) == std::vector<double>{19, 1, 1, 5, 3, 2, 16, 2, 1});
  expect_error(ErrorCode::usage, {"'swap_keypoints'", "pairs"}, [] {
    Pipeline(with({{"flip", {{"swap_keypoints", std::vector<double>{1}}}, ""}}), levels(1), {});
  });
}

TEST_CASE("policies take boxes along") {
  const Pipeline p(with({{"rand_augment", {{"magnitude", 30}}, ""}}), levels(3), {});
  int moved = 0;
  for (int64_t epoch = 0; epoch < 30; ++epoch) {
    Sample s = p.make_sample(1, epoch);
    moved += s.at("boxes").dims()[0] == 0 || s.at("boxes").as<float>()[0] != 10;
    CHECK(s.at("boxes").dims()[0] == s.at("masks").dims()[0]);
  }
  CHECK(moved > 5);
  CHECK(moved < 30);
}

TEST_CASE("cache: sources are read once, samples stay the same, and memory is bounded") {
  for (bool decoded : {false, true}) {
    CAPTURE(decoded);
    std::atomic<int> reads{0}, plain_reads{0};
    PipelineSpec plain = with({{"random_resized_crop", {{"size", 8}}, ""}, {"normalize", {}, ""}}),
                 cached = plain;
    cached.stages.insert(cached.stages.begin() + (decoded ? 1 : 0), {"cache", {}, ""});
    Pipeline a(plain, levels(12, &plain_reads), {.batch = 4}), b(cached, levels(12, &reads), {.batch = 4});
    Batch x, y;
    for (int epoch = 0; epoch < 3; ++epoch) {
      while (a.next(x)) {
        REQUIRE(b.next(y));
        CHECK(x.at("image").same_bytes(y.at("image")));
        CHECK(x.at("boxes").same_bytes(y.at("boxes")));
      }
      CHECK_FALSE(b.next(y));
    }
    CHECK(reads <= 13);  // one more to learn the shapes
    CHECK(plain_reads >= 36);
    CHECK(b.report().cached_samples == 12);
    CHECK(b.report().cached_bytes > 12 * 3600);
  }
  std::atomic<int> reads{0};
  PipelineSpec small = with({{"resize", {{"size", 600}}, ""}, {"cache", {{"memory_mib", 4}}, ""}});
  Pipeline p(small, levels(12, &reads), {.batch = 4});
  Batch b;
  for (int epoch = 0; epoch < 2; ++epoch)
    while (p.next(b)) {
    }
  CHECK(p.report().cached_samples == 2);  // of 1.4 MiB each, masks included
  CHECK(p.report().cached_bytes <= 4 << 20);
  CHECK(reads >= 20);
  expect_error(ErrorCode::usage, {"behind flip", "random", "before the first random stage"}, [] {
    Pipeline(with({{"flip", {}, ""}, {"cache", {}, ""}}), levels(1), {});
  });
}

TEST_CASE("targets that are not what they should be are named, wherever they are used") {
  struct Case {
    const char* field;
    Tensor value;
    const char* words;
  };
  const Case cases[] = {
      {"boxes", Tensor::zeros(DType::f32, {1, 2}), "not f32 [n, 4]"},
      {"boxes", Tensor::zeros(DType::f32, {1}), "not f32 [n, 4]"},
      {"boxes", Tensor::zeros(DType::f32, {}), "not one row an object"},
      {"boxes", Tensor::zeros(DType::i64, {1, 4}), "not f32 [n, 4]"},
      {"keypoints", Tensor::zeros(DType::f32, {1, 2}), "not f32 [n, k, 3]"},
      {"masks", Tensor::zeros(DType::u8, {30, 40}), "not u8 [n, h, w]"},
      {"box_labels", Tensor::zeros(DType::i64, {3}), "rows as 'boxes' has"},
  };
  const StageSpec users[] = {{"flip", {{"horizontal", true}}, ""},
                             {"crop", {{"size", std::vector<double>{9, 9}}}, ""},
                             {"ssd_crop", {}, ""},
                             {"box_encoder", {}, ""},
                             {"copy_paste", {{"share", 1}}, ""},
                             {"mosaic", {{"size", std::vector<double>{48, 64}}}, ""}};
  for (const Case& c : cases)
    for (const StageSpec& user : users) {
      CAPTURE(user.op);
      CAPTURE(c.words);
      const std::shared_ptr<const Source> source = from_function(
          2,
          [&](int64_t i) {
            Sample s = levels(2)->read(i);
            s.set(c.field, c.value);
            return s;
          },
          "damaged");
      expect_error(ErrorCode::bad_format, {cat("'", c.field, "'").c_str(), c.words},
                   [&] { (void)Pipeline(with({user}), source, {}).make_sample(0, 1); });
    }
  // Masks of another size than their picture; a field that one sample of two lacks.
  auto odd = [](const char* field, Tensor value, int64_t which) {
    return from_function(
        2,
        [=](int64_t i) {
          Sample s = levels(2)->read(i);
          if (i == which || which < 0) s.set(field, value);
          return s;
        },
        "odd");
  };
  expect_error(ErrorCode::bad_format, {"'masks' is u8[1,8,8]", "40 x 30"}, [&] {
    (void)Pipeline(with({{"copy_paste", {{"share", 1}}, ""}}),
                   odd("masks", Tensor::zeros(DType::u8, {1, 8, 8}), -1), {})
        .make_sample(0, 1);
  });
  for (int64_t which : {0, 1})
    expect_error(ErrorCode::bad_format, {cat("sample ", which, " has 'box_extra'").c_str()}, [&] {
      const Pipeline p(with({{"mosaic", {{"size", std::vector<double>{48, 64}}}, ""}}),
                       odd("box_extra", Tensor::zeros(DType::f32, {1}), which), {});
      for (int64_t epoch = 0; epoch < 8; ++epoch) (void)p.make_sample(0, epoch);
    });
}
