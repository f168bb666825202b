// SPDX-License-Identifier: Apache-2.0
// Stages on pictures against Pillow and NumPy (tests/data/expect/make_ops.py), and what random ones promise.
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "data/ops/stage.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::data;

namespace {

using Json = nlohmann::json;

StageFn stage(const char* op, const Options& o = {}) {
  const StageKind& k = stage_kind(op, "test");
  return k.make(Args(k.schema, o, "test"), Match::none);
}

Sample flat(int w, int h, double level) {
  Sample s;
  s.image.emplace(Tensor::full(DType::u8, {h, w, 3}, level));
  return s;
}

// Positions (y, x) whose pixel is not `level`.
std::set<std::pair<int, int>> changed(Sample& s, int level) {
  const Tensor p = s.image->pixels();
  std::set<std::pair<int, int>> out;
  for (int64_t i = 0; i < p.count(); ++i)
    if (p.get_int(i) != level)
      out.emplace(static_cast<int>(i / 3 / p.dims()[1]), static_cast<int>(i / 3 % p.dims()[1]));
  return out;
}

}  // namespace

TEST_CASE("stages give what Pillow and NumPy give") {
  const Json all = Json::parse(read_file("tests/data/expect/ops.json"));
  const int64_t h = all["height"], w = all["width"];
  const Tensor picture = Tensor::from<uint8_t>({h, w, 3}, all["pixels"].get<std::vector<uint8_t>>());
  CHECK(all["cases"].size() == 17);
  for (const Json& c : all["cases"]) {
    const std::string op = c["op"];
    CAPTURE(op);
    CAPTURE(c["options"].dump());
    Options o;
    for (const auto& [key, value] : c["options"].items()) {
      if (value.is_string())
        o[key] = value.get<std::string>();
      else if (value.is_array())
        o[key] = value.get<std::vector<double>>();
      else
        o[key] = value.get<double>();
    }
    Sample s;
    s.image.emplace(picture.clone());
    stage(op.c_str(), o)(s, Draw(0, 0, 0, 0));
    const Tensor got = s.image->pixels();
    REQUIRE(got.dims() == picture.dims());
    // Pillow takes positions in 16.16 fixed point, so a pixel on the rim may be inside for one and outside
    // for the other.
    const bool warps = op == "rotate" || op == "affine";
    const double tolerance = c["tolerance"];
    int64_t off = 0;
    for (int64_t i = 0; i < got.count(); ++i)
      off += std::abs(got.get_double(i) - c["values"][static_cast<size_t>(i)].get<double>()) > tolerance;
    CHECK(off <= (warps ? 6 : 0));
  }
}

TEST_CASE("erase fills one rectangle within its shares and ratios") {
  int erased = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    Sample s = flat(60, 40, 200);
    stage("erase", {{"scale", std::vector<double>{0.1, 0.2}},
                    {"ratio", std::vector<double>{0.5, 2}},
                    {"fill", 7},
                    {"probability", coin(0.5)}})(s, Draw(1, 0, i, 0));
    const auto holes = changed(s, 200);
    if (holes.empty()) continue;
    ++erased;
    int x0 = 60, x1 = 0, y0 = 40, y1 = 0;
    for (auto [y, x] : holes) {
      x0 = std::min(x0, x), x1 = std::max(x1, x + 1), y0 = std::min(y0, y), y1 = std::max(y1, y + 1);
      CHECK(s.image->pixels().get_int((y * 60 + x) * 3 + 1) == 7);
    }
    const double area = (x1 - x0) * (y1 - y0), ratio = (x1 - x0) / static_cast<double>(y1 - y0);
    CHECK(area == static_cast<double>(holes.size()));
    CHECK((area > 0.09 * 2400 && area < 0.21 * 2400));
    CHECK((ratio > 0.45 && ratio < 2.2));
  }
  CHECK((erased > 70 && erased < 130));
}

TEST_CASE("grid_mask fills squares at equal distances") {
  for (uint64_t i = 0; i < 20; ++i) {
    Sample s = flat(64, 48, 200);
    stage("grid_mask", {{"tile", 16}, {"ratio", 0.25}})(s, Draw(1, 0, i, 0));
    const auto holes = changed(s, 200);
    CHECK(std::ssize(holes) ==
          64 * 48 / 16);  // squares of 4 in tiles of 16; a cut one goes on at the other side
    for (auto [y, x] : holes) {
      if (x + 16 < 64) CHECK(holes.contains({y, x + 16}));
      if (y + 16 < 48) CHECK(holes.contains({y + 16, x}));
    }
  }
}

TEST_CASE("noise has the deviation and the share of dust that were asked for") {
  Sample s = flat(200, 200, 128);
  stage("noise", {{"deviation", 12}})(s, Draw(1, 0, 0, 0));
  const std::vector<double> v = to_doubles(s.image->pixels());
  double sum = 0, squares = 0;
  for (double x : v) sum += x - 128, squares += (x - 128) * (x - 128);
  const auto n = static_cast<double>(v.size());
  CHECK(std::abs(sum / n) < 0.2);
  CHECK(std::sqrt(squares / n) == doctest::Approx(12).epsilon(0.02));
  Sample dusty = flat(200, 200, 128);
  stage("noise", {{"salt_pepper", 0.1}})(dusty, Draw(1, 0, 0, 0));
  int64_t black = 0, white = 0;
  for (auto [y, x] : changed(dusty, 128)) {
    const int64_t at = (y * 200 + x) * 3;
    const Tensor p = dusty.image->pixels();
    CHECK((p.get_int(at) == p.get_int(at + 1) && p.get_int(at) == p.get_int(at + 2)));
    (p.get_int(at) == 0 ? black : white) += 1;
  }
  CHECK(static_cast<double>(black + white) == doctest::Approx(4000).epsilon(0.06));
  CHECK(static_cast<double>(black) == doctest::Approx(2000).epsilon(0.1));
}

TEST_CASE("random augmentation: how many operations, how strong, and each of the list in turn") {
  // Of magnitude 0 the operations of geometry and colour leave a picture of middle levels as it is.
  auto mixed = [] {
    Sample s;
    Tensor t(DType::u8, {20, 20, 3});
    for (int64_t i = 0; i < t.count(); ++i) t.set_int(i, 40 + i * 37 % 150);
    s.image.emplace(t);
    return s;
  };
  const Tensor before = mixed().image->pixels();
  auto unchanged = [&](const char* op, const Options& o) {
    int same = 0;
    for (uint64_t i = 0; i < 300; ++i) {
      Sample s = mixed();
      stage(op, o)(s, Draw(5, 0, i, 0));
      CHECK(s.image->pixels().dims() == before.dims());
      same += s.image->pixels().same_bytes(before);
    }
    return same / 300.0;
  };
  // All but autocontrast and equalize, of 14, leave it; two in a row (12/14)^2; one in 14 is the identity.
  CHECK(unchanged("rand_augment", {{"count", 1}, {"magnitude", 0}}) ==
        doctest::Approx(12. / 14).epsilon(0.08));
  CHECK(unchanged("rand_augment", {{"count", 2}, {"magnitude", 0}}) ==
        doctest::Approx(144. / 196).epsilon(0.1));
  CHECK(unchanged("rand_augment", {{"count", 1}, {"magnitude", 30}}) < 0.16);
  CHECK(unchanged("trivial_augment", {}) < 0.25);
}

TEST_CASE("cast: types, factors, and numbers beyond the type") {
  Sample s;
  s.set("x", Tensor::from<int64_t>({3}, {-3, 100, 300}));
  stage("cast", {{"field", "x"}, {"dtype", "f32"}, {"scale", 0.5}})(s, Draw(0, 0, 0, 0));
  CHECK(s.at("x").dtype() == DType::f32);
  CHECK(to_doubles(s.at("x")) == std::vector<double>{-1.5, 50, 150});
  stage("cast", {{"field", "x"}, {"dtype", "f16"}})(s, Draw(0, 0, 0, 0));
  CHECK(s.at("x").dtype() == DType::f16);
  stage("cast", {{"field", "x"}, {"dtype", "i32"}})(s, Draw(0, 0, 0, 0));
  CHECK(to_ints(s.at("x")) == std::vector<int64_t>{-1, 50, 150});
  test::expect_error(ErrorCode::usage, {"'dtype' = \"float\""}, [] {
    stage("cast", {{"field", "x"}, {"dtype", "float"}});
  });
  test::expect_error(ErrorCode::bad_name, {"no field 'y'", "it has: x"}, [&] {
    stage("cast", {{"field", "y"}, {"dtype", "f32"}})(s, Draw(0, 0, 0, 0));
  });
}
