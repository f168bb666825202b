// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "data/ops/stage.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::data;
using test::expect_error;

namespace {

StageFn stage(const char* op, const Options& o = {}) {
  const StageKind& k = stage_kind(op, "test");
  return k.make(Args(k.schema, o, "test"), Match::none);
}

Sample with_boxes(int w, int h, const std::vector<float>& boxes, const std::vector<int64_t>& labels) {
  Sample s;
  s.image.emplace(Tensor::zeros(DType::u8, {h, w, 3}));
  s.set("boxes", Tensor::from<float>({std::ssize(labels), 4}, boxes));
  s.set("box_labels", Tensor::from<int64_t>({std::ssize(labels)}, labels));
  return s;
}

}  // namespace

TEST_CASE("box_encoder gives what DALI's gives") {
  const auto e = nlohmann::json::parse(read_file("tests/data/expect/boxes.json"));
  std::vector<float> boxes;
  std::vector<int64_t> labels;
  for (const auto& row : e.at("boxes"))
    for (size_t k = 0; k < 4; ++k) boxes.push_back(row.at(k).get<float>() * (k % 2 ? 150.f : 200.f));
  for (const auto& l : e.at("labels")) labels.push_back(l.get<int64_t>() - 1);  // ours count from 0
  Sample s = with_boxes(200, 150, boxes, labels);
  stage("box_encoder")(s, Draw(1, 0, 0, 0));
  const Tensor classes = s.at("anchor_labels"), offsets = s.at("anchor_boxes");
  REQUIRE(classes.dims() == Dims{e.at("anchors").get<int64_t>()});
  std::vector<int64_t> hits, found;
  for (int64_t i = 0; i < classes.count(); ++i)
    if (const int64_t c = classes.get_int(i)) hits.push_back(i), found.push_back(c);
  CHECK(hits == e.at("hits").get<std::vector<int64_t>>());
  CHECK(found == e.at("classes").get<std::vector<int64_t>>());
  for (size_t i = 0; i < hits.size(); ++i)
    for (size_t k = 0; k < 4; ++k)  // boxes pass through pixels in f32
      CHECK(offsets.get_double(hits[i] * 4 + static_cast<int64_t>(k)) ==
            doctest::Approx(e.at("offsets").at(i).at(k).get<double>()).epsilon(1e-4));
  CHECK(offsets.get_double(0) == 0);

  Sample few = with_boxes(200, 150, boxes, labels);
  stage("box_encoder", {{"anchors", e.at("few").get<std::vector<double>>()}, {"offsets", false}})(
      few, Draw(1, 0, 0, 0));
  CHECK(to_ints(few.at("anchor_labels")) == e.at("few_classes").get<std::vector<int64_t>>());
  for (int64_t i = 0; i < 16; ++i)
    CHECK(few.at("anchor_boxes").get_double(i) ==
          doctest::Approx(
              e.at("few_places").at(static_cast<size_t>(i / 4)).at(static_cast<size_t>(i % 4)).get<double>())
              .epsilon(1e-4));
  expect_error(ErrorCode::usage, {"'anchors' has 3 numbers"}, [] {
    stage("box_encoder", {{"anchors", std::vector<double>{1, 2, 3}}});
  });
  expect_error(ErrorCode::usage, {"'scales' one more"}, [] {
    stage("box_encoder", {{"maps", std::vector<double>{4}}});
  });
}

TEST_CASE("ssd_crop keeps its word: parts, shapes, and the boxes whose centres stay") {
  const StageFn f = stage("ssd_crop");
  int whole = 0;
  double least = 1;
  for (uint64_t i = 0; i < 600; ++i) {
    Sample s = with_boxes(400, 300, {20, 20, 120, 140, 200, 150, 380, 280, 300, 10, 330, 40}, {0, 1, 2});
    f(s, Draw(9, 0, i, 0));
    const int w = s.picture().width(), h = s.picture().height();
    const Tensor boxes = s.at("boxes"), labels = s.at("box_labels");
    REQUIRE(boxes.dims()[0] >= 1);
    REQUIRE(boxes.dims()[0] == labels.dims()[0]);
    if (w == 400 && h == 300) {
      ++whole;
      CHECK(boxes.dims()[0] == 3);
      continue;
    }
    least = std::min(least, static_cast<double>(w) / 400);
    CHECK(w >= 119);
    CHECK(h >= 89);
    CHECK(w <= 2 * h);
    CHECK(h <= 2 * w);
    // A kept centre is inside, so at least a quarter of the box is.
    const double areas[] = {12000, 23400, 900};
    for (int64_t k = 0; k < boxes.dims()[0]; ++k) {
      const float* b = boxes.as<float>() + 4 * k;
      CHECK((b[2] - b[0]) * (b[3] - b[1]) >= areas[labels.get_int(k)] / 4 - 1);
    }
  }
  CHECK(whole > 86);  // one draw in seven, and every failed try draws anew
  CHECK(whole < 330);
  CHECK(least < 0.4);
}
