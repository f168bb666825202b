// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <tuple>

#include "base/file.h"
#include "data/evaluation.h"
#include "data/ops/colour.h"
#include "data/ops/stage.h"
#include "support/expect_error.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::data;

namespace {

// A picture whose pixel (x, y) is (4x, 4y, 0), so that a colour tells where it came from.
Tensor ramp(int w, int h) {
  Tensor t = Tensor::zeros(DType::u8, {h, w, 3});
  uint8_t* p = t.as_mutable<uint8_t>();
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x) {
      p[(y * w + x) * 3] = static_cast<uint8_t>(4 * x);
      p[(y * w + x) * 3 + 1] = static_cast<uint8_t>(4 * y);
    }
  return t;
}

Sample picture(int w = 60, int h = 40) {
  Sample s;
  s.image.emplace(ramp(w, h));
  return s;
}

StageFn stage(const char* op, const Options& o = {}) {
  const StageKind& k = stage_kind(op, "test");
  return k.make(Args(k.schema, o, "test"), Match::none);
}

const Draw kDraw(1, 0, 0, 0);

// Where the pixel at (x, y) of the finished picture came from.
std::pair<double, double> origin_at(Sample& s, int x, int y) {
  const Tensor& p = s.image->pixels();
  const uint8_t* v = p.as<uint8_t>() + (y * p.dims()[1] + x) * 3;
  return {v[0] / 4.0, v[1] / 4.0};
}

Tensor read_bytes(const std::string& path) {
  auto text = std::make_shared<std::string>(read_file(path));
  return Tensor::borrow(DType::u8, {static_cast<int64_t>(text->size())}, text->data(), text);
}

}  // namespace

TEST_CASE("crop, flip, pad and a quarter turn only move pixels") {
  Sample s = picture();
  stage("crop", {{"size", std::vector<double>{20, 30}}, {"x", 0.0}, {"y", 1.0}})(s, kDraw);
  CHECK(origin_at(s, 0, 0) == std::pair(0.0, 20.0));
  stage("flip", {{"horizontal", true}, {"vertical", true}})(s, kDraw);
  CHECK(origin_at(s, 0, 0) == std::pair(29.0, 39.0));
  stage("pad", {{"border", std::vector<double>{2, 3}}, {"fill", 255}})(s, kDraw);
  CHECK(s.image->width() == 34);
  CHECK(origin_at(s, 2, 3) == std::pair(29.0, 39.0));
  CHECK(s.image->pixels().as<uint8_t>()[0] == 255);
  Sample t = picture(40, 40);
  stage("rotate", {{"angle", 90}})(t, kDraw);
  CHECK(origin_at(t, 0, 0) == std::pair(39.0, 0.0));  // counter-clockwise: the right upper corner comes first
}

TEST_CASE("a composed crop and resize equals the two steps to one level") {
  Sample a = picture(), b = picture();
  for (Sample* s : {&a, &b}) {
    stage("crop", {{"size", std::vector<double>{30, 44}}})(*s, kDraw);
    if (s == &b) s->image->pixels();
    stage("resize", {{"size", std::vector<double>{17, 23}}})(*s, kDraw);
  }
  const Tensor x = a.image->pixels(), y = b.image->pixels();
  int64_t worst = 0;
  for (int64_t i = 0; i < x.count(); ++i) worst = std::max(worst, std::abs(x.get_int(i) - y.get_int(i)));
  CHECK(worst == 0);
}

TEST_CASE("boxes, key points and masks follow the picture") {
  for (const char* op :
       {"crop", "resize", "flip", "rotate", "affine", "pad", "random_resized_crop", "perspective"}) {
    CAPTURE(op);
    Sample s = picture(60, 60);
    Options o;
    if (std::string(op) == "crop" || std::string(op) == "random_resized_crop") o["size"] = 48;
    if (std::string(op) == "resize") o["size"] = std::vector<double>{90, 30};
    if (std::string(op) == "flip") o["horizontal"] = true;
    if (std::string(op) == "rotate") o["angle"] = 17;
    if (std::string(op) == "affine")
      o["angle"] = -8, o["scale"] = 1.2, o["translate_x"] = 0.05, o["shear_y"] = 4;
    if (std::string(op) == "pad") o["border"] = 6;
    if (std::string(op) == "random_resized_crop") o["scale"] = std::vector<double>{0.7, 0.9};
    s.set("keypoints", Tensor::from<float>({1, 2, 3}, {25.5f, 30.5f, 1, 35.5f, 20.5f, 1}));
    s.set("boxes", Tensor::from<float>({1, 4}, {20, 25, 31, 36}));
    Tensor mask = Tensor::zeros(DType::u8, {1, 60, 60});
    for (int y = 25; y < 36; ++y)
      for (int x = 20; x < 31; ++x) mask.set_int(y * 60 + x, 1);
    s.set("masks", mask);
    stage(op, o)(s, kDraw);
    const Tensor points = s.at("keypoints"), boxes = s.at("boxes"), moved = s.at("masks");
    for (int k = 0; k < 2; ++k) {
      const float* p = points.as<float>() + 3 * k;
      if (p[2] == 0) continue;
      auto [x, y] = origin_at(s, static_cast<int>(p[0]), static_cast<int>(p[1]));
      CHECK(std::abs(x - (k ? 35 : 25)) <= 1.5);
      CHECK(std::abs(y - (k ? 20 : 30)) <= 1.5);
    }
    CHECK(moved.dims() == Dims{1, s.image->height(), s.image->width()});
    REQUIRE(boxes.dims()[0] == 1);
    const float* b = boxes.as<float>();
    int64_t outside = 0, inside = 0;
    for (int64_t i = 0; i < moved.count(); ++i) {
      if (!moved.get_int(i)) continue;
      const float x = static_cast<float>(i % moved.dims()[2]) + 0.5f,
                  y = static_cast<float>(i / moved.dims()[2]) + 0.5f;
      (x >= b[0] - 0.01f && x <= b[2] + 0.01f && y >= b[1] - 0.01f && y <= b[3] + 0.01f ? inside : outside) +=
          1;
    }
    CHECK(outside == 0);
    CHECK(inside > 50);
  }
}

TEST_CASE("boxes that leave the picture go with their labels") {
  Sample s = picture();
  s.set("boxes", Tensor::from<float>({2, 4}, {0, 0, 10, 10, 40, 20, 60, 40}));
  s.set("box_labels", Tensor::from<int64_t>({2}, {7, 8}));
  stage("crop", {{"size", 20}, {"x", 1.0}, {"y", 1.0}})(s, kDraw);
  CHECK(to_ints(s.at("box_labels")) == std::vector<int64_t>{8});
  CHECK(to_doubles(s.at("boxes")) == std::vector<double>{0, 0, 20, 20});
}

TEST_CASE("random_resized_crop draws areas and ratios within its bounds") {
  double low = 1e9, high = 0, sum = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    Sample s = picture(100, 80);
    stage("random_resized_crop", {{"size", 8}, {"scale", std::vector<double>{0.25, 0.5}}})(s,
                                                                                           Draw(4, 0, i, 0));
    s = picture(100, 80);
    s.set("keypoints", Tensor::from<float>({1, 2, 3}, {0, 0, 1, 10, 10, 1}));
    stage("random_resized_crop", {{"size", 8}, {"scale", std::vector<double>{0.25, 0.5}}})(s,
                                                                                           Draw(4, 0, i, 0));
    const float* p = s.at("keypoints").as<float>();  // 10 pixels became so many of the 8
    const double area =
        80.0 * 80.0 / (static_cast<double>(p[3] - p[0]) * static_cast<double>(p[4] - p[1])) / 8000;
    low = std::min(low, area), high = std::max(high, area), sum += area;
  }
  CHECK(low > 0.24);
  CHECK(high < 0.51);
  CHECK(sum / 2000 == doctest::Approx(0.375).epsilon(0.02));
}

TEST_CASE("normalize writes what its formula says, in both layouts and types") {
  Sample s;
  s.image.emplace(Tensor::from<uint8_t>({1, 2, 3}, {0, 128, 255, 51, 102, 204}));
  stage("normalize", {{"mean", std::vector<double>{0.5, 0.25, 0}}, {"std", std::vector<double>{0.5, 1, 2}}})(
      s, kDraw);
  Tensor chw(DType::f32, s.image->dims(s.format));
  s.image->finish(s.format, chw.mutable_data());
  const double expected[6] = {-1, -0.6, 128 / 255.0 - 0.25, 102 / 255.0 - 0.25, 0.5, 0.4};
  for (int64_t i = 0; i < 6; ++i) CHECK(chw.get_double(i) == doctest::Approx(expected[i]).epsilon(1e-6));
  stage("normalize", {{"mean", std::vector<double>{0.5, 0.25, 0}},
                      {"std", std::vector<double>{0.5, 1, 2}},
                      {"layout", "hwc"},
                      {"dtype", "f16"}})(s, kDraw);
  Tensor hwc(DType::f16, s.image->dims(s.format));
  s.image->finish(s.format, hwc.mutable_data());
  CHECK(hwc.dims() == Dims{1, 2, 3});
  for (int64_t i = 0; i < 6; ++i)
    CHECK(hwc.get_double(i) == doctest::Approx(expected[i % 3 * 2 + i / 3]).epsilon(1e-3));
}

TEST_CASE("f16 batches are the f32 ones, rounded") {
  Sample s = picture(60, 40);
  for (const char* layout : {"chw", "hwc"}) {
    stage("normalize", {{"dtype", "f16"}, {"layout", layout}})(s, kDraw);
    Tensor half(DType::f16, s.image->dims(s.format));
    s.image->finish(s.format, half.mutable_data());
    s.format.dtype = DType::f32;
    Tensor wide(DType::f32, s.image->dims(s.format));
    s.image->finish(s.format, wide.mutable_data());
    CHECK(from_doubles(DType::f16, wide.dims(), to_doubles(wide)).same_bytes(half));
  }
}

TEST_CASE("results have the same bits whatever way they are written, in every size and place") {
  for (const DType type : {DType::f32, DType::f16})
    for (const int w : {15, 16, 17, 31, 32, 33, 48, 64, 224}) {
      const int h = w == 224 ? 32 : 33;
      Sample s = picture(w, h);
      stage("normalize", {{"dtype", type == DType::f32 ? "f32" : "f16"}, {"layout", "hwc"}})(s, kDraw);
      Tensor plain(type, s.image->dims(s.format));  // by single values
      s.image->finish(s.format, plain.mutable_data());
      s.format.channels_first = true;
      const int64_t size = bits(type) / 8, n = plain.count();
      for (const int64_t shift : {0, 1, 8})  // elements off alignment
        for (const bool past_caches : {false, true}) {
          CAPTURE(w);
          CAPTURE(shift);
          CAPTURE(past_caches);
          s.format.past_caches = past_caches;
          Tensor room = Tensor::zeros(type, {n + 16});
          uint8_t* const at = static_cast<uint8_t*>(room.mutable_data()) + shift * size;
          s.image->finish(s.format, at);
          int64_t different = 0;
          for (int64_t i = 0; i < n; ++i)
            different += std::memcmp(at + (i % 3 * (n / 3) + i / 3) * size,
                                     static_cast<const uint8_t*>(plain.data()) + i * size,
                                     static_cast<size_t>(size)) != 0;
          CHECK(different == 0);
          for (int64_t i = n + shift; i < n + 16; ++i) CHECK(room.get_double(i) == 0);  // nothing behind it
        }
    }
}

TEST_CASE("colour changes") {
  auto changed = [](const char* op, Options o, std::vector<uint8_t> pixel) {
    Sample s;
    s.image.emplace(Tensor::from<uint8_t>({1, 1, 3}, pixel));
    stage(op, o)(s, kDraw);
    return to_ints(s.image->pixels());
  };
  using V = std::vector<int64_t>;
  CHECK(changed("brightness", {{"factor", 2}}, {10, 100, 200}) == V{20, 200, 255});
  CHECK(changed("contrast", {{"factor", 0.5}}, {27, 127, 227}) == V{77, 127, 177});
  CHECK(changed("saturation", {{"factor", 0}}, {255, 0, 0}) == V{76, 76, 76});
  CHECK(changed("hue", {{"degrees", 0}}, {9, 80, 200}) == V{9, 80, 200});
  CHECK(changed("grayscale", {}, {0, 255, 0}) == V{150, 150, 150});
  CHECK(changed("posterize", {{"bits", 2}}, {63, 64, 255}) == V{0, 64, 192});
  CHECK(changed("solarize", {{"threshold", 100}}, {99, 100, 255}) == V{99, 155, 0});
  const V turned = changed("hue", {{"degrees", 120}}, {150, 100, 100});
  CHECK(std::abs(0.299 * turned[0] + 0.587 * turned[1] + 0.114 * turned[2] - (0.299 * 150 + 0.701 * 100)) <
        1);
}

TEST_CASE("every stage runs on an ordinary picture and keeps its size or its word") {
  for (const StageKind& k : stage_kinds()) {
    const std::string op = k.schema.name;
    if (!k.make) continue;  // works on batches
    CAPTURE(op);
    Options o;
    for (const OptionSpec& s : k.schema.options)
      if (s.fallback.kind == Param::Kind::none && !s.optional) {
        if (s.type == OptionType::numbers)
          o[s.name] = std::vector<double>{24};
        else if (s.type == OptionType::number || s.type == OptionType::integer)
          o[s.name] = 2;
      }
    Sample s = picture();
    s.set("boxes", Tensor::from<float>({1, 4}, {5, 5, 50, 35}));
    s.set("label", Tensor::scalar<int64_t>(1));
    const bool picture_op = s.image && !leaves_picture(op) && op != "decode" && op.find("audio") == op.npos &&
                            op != "preemphasis" && op != "trim" && op != "spectrogram" &&
                            op != "mel_spectrogram" && op != "to_decibels" && op != "mfcc" &&
                            op != "spec_augment";
    if (!picture_op) continue;
    stage(op.c_str(), o)(s, Draw(1, 2, 3, 4));
    const Tensor& p = s.image->pixels();
    CHECK(p.dims()[2] == 3);
    CHECK(p.dims()[1] == s.image->width());
  }
}

TEST_CASE("the default resize of photographs is within half a level of Pillow's on average") {
  const std::string folder = "../shared/real/images/coco-like/images/";
  if (!folder_exists(folder)) PELTON_SKIP("../shared/real is absent");
  double sum = 0, count = 0;
  for (const char* name :
       {"cat-323262_1280.jpg", "clock-1274699_1280.jpg", "horse-197199_1280.jpg", "pizza-2000614_1280.jpg"})
    for (auto [x0, y0, side, size] :
         {std::tuple{0, 0, 720, 224}, {200, 100, 500, 224}, {300, 300, 300, 160}, {10, 400, 200, 224}}) {
      LazyImage ours(read_bytes(folder + name), {}, Match::none, name),
          theirs(read_bytes(folder + name), {}, Match::pillow, name);
      for (LazyImage* i : {&ours, &theirs}) {
        i->crop({x0, y0, x0 + side, std::min(y0 + side, 720)});
        i->resize(size, size, Filter::linear);
      }
      const Tensor a = ours.pixels(), b = theirs.pixels();
      for (int64_t i = 0; i < a.count(); ++i) sum += std::abs(a.as<uint8_t>()[i] - b.as<uint8_t>()[i]);
      count += static_cast<double>(a.count());
    }
  CHECK(sum / count < 0.5);
}

TEST_CASE("auto_augment: a pair of operations by their chances, the same for the same draw") {
  const StageFn f = stage("auto_augment", {});
  const Tensor before = picture().picture().pixels();
  int unchanged = 0, differ = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    Sample a = picture(), b = picture();
    f(a, Draw(1, 0, i, 0));
    f(b, Draw(1, 0, i, 0));
    CHECK(a.picture().pixels().same_bytes(b.picture().pixels()));
    unchanged += a.picture().pixels().same_bytes(before);
    f(b, Draw(1, 1, i, 0));
    differ += !b.picture().pixels().same_bytes(a.picture().pixels());
  }
  // Both chances fail in 15% of the pairs on the average; some operations leave this picture as it is.
  CHECK(unchanged > 20);
  CHECK(unchanged < 200);
  CHECK(differ > 200);
}
