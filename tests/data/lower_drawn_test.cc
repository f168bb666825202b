// SPDX-License-Identifier: Apache-2.0
// Random stages inside a graph: the draws, and whole pipelines cut between host and graph.
#include <doctest/doctest.h>

#include <cmath>

#include "data/graph_draw.h"
#include "data/lower.h"
#include "data/pipeline.h"
#include "data/source/arrays.h"
#include "interp/interpreter.h"
#include "ir/verify.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::data;

namespace {

std::shared_ptr<const Source> noise_pictures(int64_t n) {
  return from_function(
      n,
      [](int64_t i) {
        Tensor t(DType::u8, {40, 52, 3});
        const Draw d(77, 0, static_cast<uint64_t>(i), 0);
        uint8_t* v = t.as_mutable<uint8_t>();
        // Smooth, so that a different place of a tap shows as a small difference.
        for (int y = 0; y < 40; ++y)
          for (int x = 0; x < 52; ++x)
            for (int c = 0; c < 3; ++c)
              *v++ = static_cast<uint8_t>(128 + 60 * std::sin(0.2 * x + c + static_cast<double>(i)) +
                                          60 * std::cos(0.15 * y - c));
        Sample s;
        s.set("image", std::move(t));
        s.set("label", Tensor::scalar<int64_t>(i));
        return s;
      },
      "noise");
}

std::shared_ptr<const Source> stored_pictures(int64_t n, int64_t h, int64_t w) {
  Tensor images(DType::u8, {n, h, w, 3});
  uint8_t* v = images.as_mutable<uint8_t>();
  for (int64_t i = 0; i < images.count(); ++i) v[i] = static_cast<uint8_t>((i * i / 7 + i / 5) % 256);
  return std::make_shared<Arrays>("made", std::vector<std::pair<std::string, Tensor>>{{"image", images}});
}

PipelineSpec pipeline(std::vector<StageSpec> stages) {
  PipelineSpec p;
  p.seed = (uint64_t{7} << 40) + 5;
  p.source.shuffle = true;
  p.stages = {{"decode", {}, ""}, {"crop", {{"size", std::vector<double>{32, 48}}}, ""}};
  for (StageSpec& s : stages) p.stages.push_back(std::move(s));
  p.stages.push_back({"normalize", {}, ""});
  return p;
}

// The graph's part of a split, run on the host's batch.
Tensor finished(const TrainingSplit& split, const Batch& b) {
  ir::Graph g("tail");
  const Tensor& pictures = b.at("image");
  const auto in = g.add_input(
      ir::Type::tensor(DType::u8, Shape(pictures.dims().begin(), pictures.dims().end())), "image");
  const auto epoch = g.add_input(ir::Type::tensor(DType::i64, {}), "epoch");
  const auto indices = g.add_input(ir::Type::tensor(DType::i64, {b.count()}), "indices");
  ir::Builder builder(g);
  g.add_output(lower_training(builder, split.graph, in, epoch, indices), "y");
  ir::verify(g, "tail");
  return interp::run(
             g, {pictures, Tensor::scalar<int64_t>(b.epoch), Tensor::from<int64_t>({b.count()}, b.indices)})
      .outputs.at(0)
      .tensor;
}

}  // namespace

TEST_CASE("draws in a graph have the host's bits") {
  const std::vector<int64_t> indices = {0, 1, 7, 123456789012345, 4294967296};
  for (uint64_t seed : {uint64_t{0}, uint64_t{3}, (uint64_t{0x9abcdef0} << 32) + 0x80000001}) {
    for (int64_t epoch : {int64_t{0}, int64_t{5}, int64_t{1} << 33}) {
      ir::Graph g("draws");
      const auto e = g.add_input(ir::Type::tensor(DType::i64, {}), "e");
      const auto at = g.add_input(ir::Type::tensor(DType::i64, {5}), "i");
      ir::Builder b(g);
      GraphDraw d(b, seed, e, at);
      d.begin(9, {0, 3, 64});
      for (uint32_t slot : {0u, 3u, 64u}) {
        g.add_output(d.uniform(slot), cat("u", slot));
        g.add_output(d.below(slot, b.scalar(DType::i64, 1000003)), cat("b", slot));
        g.add_output(d.normal(slot), cat("n", slot));
        g.add_output(d.value({choice({4, 5, 6.5}), slot}), cat("c", slot));
        g.add_output(d.value({uniform(-2, 3), slot}), cat("v", slot));
        g.add_output(d.value({normal(0, 5), slot, -1, 2}), cat("l", slot));
      }
      std::vector<Tensor> out;
      for (const auto& o :
           interp::run(g, {Tensor::scalar<int64_t>(epoch), Tensor::from<int64_t>({5}, indices)}).outputs)
        out.push_back(o.tensor);
      size_t k = 0;
      for (uint32_t slot : {0u, 3u, 64u}) {
        for (size_t i = 0; i < indices.size(); ++i) {
          const Draw host(seed, static_cast<uint64_t>(epoch), static_cast<uint64_t>(indices[i]), 9);
          const auto n = static_cast<int64_t>(i);
          CHECK(out[k].get_double(n) == host.uniform(slot));
          CHECK(out[k + 1].get_int(n) == host.below(slot, 1000003));
          CHECK(out[k + 2].get_double(n) == doctest::Approx(host.normal(slot)).epsilon(1e-12));
          CHECK(out[k + 3].get_double(n) ==
                std::vector<double>{4, 5, 6.5}[static_cast<size_t>(host.below(slot, 3))]);
          CHECK(out[k + 4].get_double(n) == host.uniform(slot, -2, 3));
          CHECK(out[k + 5].get_double(n) ==
                doctest::Approx(std::clamp(5 * host.normal(slot), -1., 2.)).epsilon(1e-12));
        }
        k += 6;
      }
    }
  }
}

TEST_CASE("pipelines cut between host and graph make the samples of the whole pipeline") {
  struct Case {
    const char* name;
    std::vector<StageSpec> stages;
    double tolerance;  // in normalised values; a level is 0.017
  };
  const Case cases[] = {
      {"flip", {{"flip", {{"vertical", coin(0.5)}}, ""}}, 1e-6},
      {"crop", {{"crop", {{"size", 20}, {"x", uniform(0, 1)}, {"y", uniform(0, 1)}}, ""}}, 1e-6},
      {"colours",
       {{"brightness", {{"factor", uniform(0.6, 1.4)}}, ""},
        {"contrast", {{"factor", uniform(0.6, 1.4)}}, ""},
        {"saturation", {{"factor", normal(1, 0.3)}}, ""},
        {"hue", {{"degrees", uniform(-40, 40)}}, ""}},
       2e-5},
      {"chances",
       {{"grayscale", {{"probability", coin(0.5)}}, ""},
        {"solarize", {{"threshold", uniform(100, 200)}, {"probability", coin(0.5)}}, ""},
        {"posterize", {{"bits", choice({2, 4, 5})}, {"probability", coin(0.7)}}, ""}},
       0.0176 * 64},  // a level can fall to the other side of a step
      {"erase",
       {{"erase", {{"probability", coin(0.8)}, {"fill", std::vector<double>{9, 200, 30}}}, ""}},
       1e-6},
      {"rotate", {{"rotate", {{"angle", uniform(-40, 40)}, {"fill", 77}}, ""}}, 0.0176},
      {"all",
       {{"flip", {}, ""},
        {"rotate", {{"angle", uniform(-20, 20)}}, ""},
        {"contrast", {{"factor", uniform(0.8, 1.2)}}, ""},
        {"crop", {{"size", 24}, {"x", uniform(0, 1)}}, ""},
        {"erase", {}, ""}},
       0.04}};
  for (const Case& c : cases) {
    CAPTURE(std::string(c.name));
    const PipelineSpec whole = pipeline(c.stages);
    const TrainingSplit split = split_training(whole);
    REQUIRE(split.host.stages.size() == 2);
    REQUIRE(split.graph.stages.size() == c.stages.size() + 1);
    CHECK(split.height == 32);
    CHECK(split.width == 48);
    Pipeline a(whole, noise_pictures(12), {.batch = 6}), b(split.host, noise_pictures(12), {.batch = 6});
    Batch x, y;
    double differ = 0, all = 0;
    for (int step = 0; step < 5; ++step) {  // into the third epoch
      if (!a.next(x)) REQUIRE(a.next(x));
      if (!b.next(y)) REQUIRE(b.next(y));
      CHECK(x.indices == y.indices);
      const Tensor got = finished(split, y), &want = x.at("image");
      REQUIRE(got.dims() == want.dims());
      for (int64_t i = 0; i < got.count(); ++i) {
        const double d = std::abs(got.get_double(i) - want.get_double(i));
        if (d > c.tolerance) CHECK(d <= c.tolerance);
        differ += d > 1e-4, ++all;
      }
    }
    // Where levels are rounded twice, few of them differ at all.
    CHECK(differ / all < 0.1);
  }
}

TEST_CASE("a resize of pictures that a source stores in one size is the graph's when that is asked for") {
  PipelineSpec whole;
  whole.seed = 3;
  whole.source.shuffle = true;
  whole.stages = {{"decode", {}, ""},
                  {"resize", {{"size", std::vector<double>{40, 56}}, {"device", "gpu"}}, ""},
                  {"flip", {}, ""},
                  {"normalize", {}, ""}};
  const auto source = stored_pictures(12, 24, 32);
  CHECK(split_training(whole).graph.stages.size() == 2);
  for (const char* filter : {"linear", "cubic", "nearest"}) {
    CAPTURE(std::string(filter));
    for (const double size : {48.0, 15.0}) {
      whole.stages[1].options = {{"size", size}, {"filter", std::string(filter)}, {"device", "gpu"}};
      const TrainingSplit split = split_training(whole, {24, 32, 3});
      REQUIRE(split.graph.stages.size() == 3);
      CHECK(split.height == 24);
      CHECK(split.width == 32);
      PipelineSpec on_host = whole;
      on_host.stages[1].options.erase("device");
      CHECK(split_training(on_host, {24, 32, 3}).graph.stages.size() == 2);
      Pipeline a(on_host, source, {.batch = 6}), b(split.host, source, {.batch = 6});
      Batch x, y;
      for (int step = 0; step < 5; ++step) {
        if (!a.next(x)) REQUIRE(a.next(x));
        if (!b.next(y)) REQUIRE(b.next(y));
        const Tensor got = finished(split, y), &want = x.at("image");
        REQUIRE(got.dims() == want.dims());
        double largest = 0;
        for (int64_t i = 0; i < got.count(); ++i)
          largest = std::max(largest, std::abs(got.get_double(i) - want.get_double(i)));
        CHECK(largest <= 2e-5);  // normalised; a level is 0.017
      }
    }
  }
  // A pipeline asks its source.
  CHECK(Pipeline(whole, source, {.batch = 6, .for_graph = true}).graph_part().stages.size() == 3);
  test::expect_error(ErrorCode::no_device, {"resize runs on a GPU only within a training step"},
                     [&] { Pipeline(whole, noise_pictures(12), {.batch = 6, .for_graph = true}); });
  // The host would join it with another resize or a crop; match rounds to levels.
  auto moved = [&](std::vector<StageSpec> stages, const char* match = "none") {
    PipelineSpec p = whole;
    p.stages = std::move(stages);
    p.match = match;
    return split_training(p, {24, 32, 3}).graph.stages.size();
  };
  const StageSpec decode{"decode", {}, ""}, resize{"resize", {{"size", 20}, {"device", "gpu"}}, ""};
  CHECK(moved({decode, resize}) == 1);
  CHECK(moved({decode, {"crop", {{"size", 16}}, ""}, resize}) == 0);
  CHECK(moved({decode, resize, {"resize", {{"size", 30}, {"device", "gpu"}}, ""}}) == 0);
  CHECK(moved({decode, {"resize", {{"size", 20}, {"mode", "shorter"}, {"device", "gpu"}}, ""}}) == 0);
  CHECK(moved({decode, resize}, "pillow") == 0);
}

TEST_CASE("what keeps a pipeline whole") {
  CHECK(split_training(pipeline({{"equalize", {}, ""}})).graph.stages.size() == 1);  // normalize alone
  PipelineSpec mixed = pipeline({{"flip", {}, ""}});
  mixed.stages.push_back({"mixup", {}, ""});
  CHECK(split_training(mixed).graph.stages.empty());
  PipelineSpec open = pipeline({{"flip", {}, ""}});
  open.stages.erase(open.stages.begin() + 1);
  CHECK(split_training(open).graph.stages.empty());
  // Stages on other fields stay on the host, with their numbers.
  PipelineSpec labels = pipeline({{"flip", {}, ""},
                                  {"one_hot", {{"classes", 12}}, ""},
                                  {"contrast", {{"factor", uniform(0.5, 2)}}, ""}});
  const TrainingSplit split = split_training(labels);
  REQUIRE(split.host.stages.size() == 3);
  CHECK(split.host.stages[2].op == "one_hot");
  CHECK(split.graph.stages[1].number == 4);
}
