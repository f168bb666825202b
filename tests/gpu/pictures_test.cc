// SPDX-License-Identifier: Apache-2.0
// Stages of input pipelines on the GPU: what the interpreter makes of the same pictures, to one level.
#include <doctest/doctest.h>

#include <cmath>

#include "data/evaluation.h"
#include "data/lower.h"
#include "interp/interpreter.h"
#include "ir/verify.h"
#include "register/model.h"
#include "register/registry.h"
#include "runtime/executable.h"

using namespace pelton;
using namespace pelton::data;

namespace {

constexpr double kLevel = 1 / (255 * 0.224);  // in normalised values, of the channel that spreads most

Tensor pictures(int64_t n, int64_t h, int64_t w) {
  Tensor t(DType::u8, {n, h, w, 3});
  uint8_t* v = t.as_mutable<uint8_t>();
  for (int64_t i = 0; i < n * h * w * 3; ++i, ++v) {
    const auto c = static_cast<double>(i % 3), x = static_cast<double>(i / 3 % w),
               y = static_cast<double>(i / 3 / w);
    *v = static_cast<uint8_t>(128 + 60 * std::sin(0.2 * x + c) + 60 * std::cos(0.15 * y - c));
  }
  return t;
}

PipelineSpec with(std::vector<StageSpec> stages) {
  PipelineSpec p;
  p.seed = 11;
  p.stages = std::move(stages);
  p.stages.push_back({"normalize", {}, ""});
  return p;
}

void agree(const ir::Graph& graph, const std::vector<ir::HostValue>& inputs) {
  const Tensor want = interp::run(graph, inputs).outputs.at(0).tensor;
  device::Target target = find_device("cuda", 0);
  Model model;
  model.graph = graph;
  auto plan = std::make_shared<runtime::Plan>(compile_model(std::move(model), target, {}));
  auto e = runtime::Executable::create(plan, registry(), target);
  for (int round = 0; round < 3; ++round) {
    const Tensor got = e->run(inputs).at(0).tensor;
    REQUIRE(got.dims() == want.dims());
    double largest = 0, differ = 0;
    for (int64_t i = 0; i < want.count(); ++i) {
      const double d = std::abs(got.get_double(i) - want.get_double(i));
      largest = std::max(largest, d);
      differ += d > 1e-4;
    }
    CHECK(largest <= kLevel);
    CHECK(differ / static_cast<double>(want.count()) < 0.05);
  }
}

}  // namespace

TEST_CASE("gpu: drawn stages of a training pipeline") {
  const StageSpec flip{"flip", {}, ""},
      crop{"crop", {{"size", 48}, {"x", uniform(0, 1)}, {"y", uniform(0, 1)}}, ""},
      brightness{"brightness", {{"factor", uniform(0.8, 1.2)}}, ""},
      hue{"hue", {{"degrees", uniform(-30, 30)}}, ""}, rotate{"rotate", {{"angle", uniform(-30, 30)}}, ""},
      erase{"erase", {{"probability", coin(0.7)}}, ""},
      larger{"resize", {{"size", std::vector<double>{150, 170}}, {"device", "gpu"}}, ""},
      smaller{"resize", {{"size", 30}, {"filter", "cubic"}, {"device", "gpu"}}, ""};
  for (const PipelineSpec& p :
       {with({flip, crop}), with({brightness, hue}), with({rotate}), with({erase}),
        with({flip, rotate, brightness, crop, erase}), with({larger, flip}), with({smaller})}) {
    ir::Graph g("tail");
    const auto in = g.add_input(ir::Type::tensor(DType::u8, {6, 64, 80, 3}), "image");
    const auto epoch = g.add_input(ir::Type::tensor(DType::i64, {}), "epoch");
    const auto indices = g.add_input(ir::Type::tensor(DType::i64, {6}), "indices");
    ir::Builder b(g);
    g.add_output(lower_training(b, p, in, epoch, indices), "y");
    ir::verify(g, "tail");
    agree(g, {pictures(6, 64, 80), Tensor::scalar<int64_t>(3),
              Tensor::from<int64_t>({6}, {0, 9, 4, 100, 7, 1 << 20})});
  }
}

TEST_CASE("gpu: pictures of one size through resize, crop and colours") {
  for (const char* filter : {"linear", "cubic", "lanczos"}) {
    const PipelineSpec p =
        evaluation_form(with({{"decode", {}, ""},
                              {"resize", {{"size", 72}, {"mode", "shorter"}, {"filter", filter}}, ""},
                              {"crop", {{"size", 64}}, ""},
                              {"contrast", {{"factor", 1.2}}, ""}}));
    ir::Graph g("eval");
    const auto in = g.add_input(ir::Type::tensor(DType::u8, {2, 120, 160, 3}), "image");
    ir::Builder b(g);
    g.add_output(lower_stages(b, p, in), "y");
    ir::verify(g, "eval");
    agree(g, {pictures(2, 120, 160)});
  }
}
