// SPDX-License-Identifier: Apache-2.0
// The last stages of a pipeline as part of the training step: the model sees what the whole pipeline makes.
#include <doctest/doctest.h>

#include <cmath>

#include "interp/interpreter.h"
#include "support/expect_error.h"
#include "train/loader.h"
#include "train/step.h"

using namespace pelton;
using namespace pelton::train;
using data::Pipeline;
using data::PipelineSpec;

namespace {

constexpr int kHeight = 12, kWidth = 16;

std::shared_ptr<const data::Source> pictures(int64_t n, bool boxes = false) {
  return data::from_function(
      n,
      [boxes](int64_t i) {
        Tensor t(DType::u8, {kHeight + 8, kWidth + 6 + i % 3, 3});
        for (int64_t k = 0; k < t.count(); ++k)
          t.set_int(k, 128 + std::lround(100 * std::sin(0.05 * static_cast<double>(k % 97) +
                                                        static_cast<double>(i))));
        data::Sample s;
        s.set("image", std::move(t));
        s.set("label", Tensor::scalar<int64_t>(i % 2));
        if (boxes) s.set("boxes", Tensor::from<float>({1, 4}, {1, 1, 5, 5}));
        return s;
      },
      "waves");
}

data::Param between(double low, double high) {
  data::Param p;
  p.kind = data::Param::Kind::uniform;
  p.numbers = {low, high};
  return p;
}

PipelineSpec pipeline(std::vector<data::StageSpec> stages, const std::string& match = "none") {
  PipelineSpec p;
  p.seed = 11;
  p.match = match;
  p.source.shuffle = true;
  p.stages = {{"decode", {}, ""}, {"resize", {{"size", std::vector<double>{kHeight, kWidth}}}, ""}};
  for (data::StageSpec& s : stages) p.stages.push_back(std::move(s));
  p.stages.push_back({"normalize", {}, ""});
  return p;
}

// A linear classifier that also yields what it is given, as the graph's first outputs.
class Seeing : public Trainable {
 public:
  Seeing()
      : model_(named_model(
            "mlp",
            {{"features", int64_t{3 * kHeight * kWidth}}, {"hidden", ir::Ints{}}, {"classes", int64_t{2}}})) {
  }
  std::string name() const override { return "seeing"; }
  std::vector<nn::ModelInput> inputs() const override {
    return {{"image", DType::f32, {3, kHeight, kWidth}}};
  }
  ir::ValueId build(nn::Net& net, const std::vector<ir::ValueId>& in) const override {
    net.builder().graph().add_output(in[0], cat("seen", net.builder().graph().outputs.size()));
    return model_->build(net, in);
  }
  std::string output() const override { return "y"; }

 private:
  std::unique_ptr<Trainable> model_;
};

Wanted wanted() {
  Wanted w;
  w.inputs = Seeing().inputs();
  w.target = "label";
  w.classes = 2;
  return w;
}

// What the model sees over two epochs of steps against the batches of the whole pipeline.
double difference(const PipelineSpec& p, size_t in_graph, int64_t accumulate = 1) {
  constexpr int64_t kSamples = 10, kBatch = 4;
  Pipeline whole(p, pictures(kSamples), {.batch = kBatch});
  auto cut =
      std::make_unique<Pipeline>(p, pictures(kSamples), data::RunOptions{.batch = kBatch, .for_graph = true});
  CHECK(cut->graph_part().stages.size() == in_graph);
  Loader loader(std::move(cut), wanted(), kBatch);
  CHECK(loader.state() == whole.state().str());
  StepOptions o;
  o.batch = kBatch;
  o.accumulate = accumulate;
  o.forms = loader.forms({}, {});
  const StepGraph step = build_train_step(Seeing(), o);
  CHECK(step.inputs == std::vector<std::string>{"image", "epoch", "indices", "label"});
  double worst = 0;
  TrainBatch b;
  data::Batch expected;
  for (int64_t k = 0; k < 2 * loader.steps(); ++k) {
    if (!loader.next(b)) REQUIRE(loader.next(b));
    if (!whole.next(expected)) REQUIRE(whole.next(expected));
    CHECK(b.inputs[0].dtype() == DType::u8);
    std::vector<ir::HostValue> in(b.inputs.begin(), b.inputs.end());
    in.emplace_back(b.target);
    const auto out = interp::run(step.graph, in).outputs;
    const Tensor& x = expected.at("image");
    const int64_t rows = kBatch / accumulate, row = x.count() / x.dims()[0];
    for (int64_t i = 0; i < x.count(); ++i) {
      const Tensor& seen = out.at(static_cast<size_t>(i / (rows * row))).tensor;
      worst = std::max(worst, std::abs(seen.get_double(i % (rows * row)) - x.get_double(i)));
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("the step sees the pipeline's samples, whatever is drawn in it") {
  const std::vector<data::StageSpec> moves = {{"flip", {}, ""}, {"flip", {{"vertical", true}}, ""}};
  CHECK(difference(pipeline({}, "pillow"), 1) == 0);
  CHECK(difference(pipeline(moves, "pillow"), 3) == 0);
  CHECK(difference(pipeline(moves, "pillow"), 3, 2) == 0);
  const std::vector<data::StageSpec> colours = {{"brightness", {{"factor", between(0.6, 1.4)}}, ""},
                                                {"saturation", {{"factor", between(0.5, 1.5)}}, ""},
                                                {"hue", {{"degrees", between(-20, 20)}}, ""}};
  CHECK(difference(pipeline(colours, "pillow"), 4, 2) < 1e-4);
  // Where nothing is matched, pixels are rounded to 8 bits at the cut: half a level of 1/0.224 / 255.
  const double level = 1 / 0.224 / 255;
  CHECK(difference(pipeline(moves), 3) <= 0.5 * level + 1e-6);
  CHECK(difference(pipeline(moves), 3) > 0);
}

TEST_CASE("samples whose targets follow the picture, and pictures that are their own target, stay whole") {
  const PipelineSpec p = pipeline({{"flip", {}, ""}});
  CHECK(Pipeline(p, pictures(3, true), {.for_graph = true}).graph_part().stages.empty());
  CHECK(Pipeline(p, pictures(3), {.for_graph = true}).graph_part().stages.size() == 2);
  test::expect_error(ErrorCode::usage, {"training form"},
                     [&] { Pipeline(p, pictures(3), {.evaluation = true, .for_graph = true}); });
}

TEST_CASE("a run goes on where it stood, with the step's part of the pipeline or without") {
  const PipelineSpec p = pipeline({{"flip", {}, ""}});
  Pipeline whole(p, pictures(10), {.batch = 4}), cut(p, pictures(10), {.batch = 4, .for_graph = true});
  data::Batch a, b;
  REQUIRE(whole.next(a));
  cut.restore(whole.state());
  REQUIRE(whole.next(a));
  REQUIRE(cut.next(b));
  CHECK(a.indices == b.indices);
  // Another description of the step's part is another pipeline.
  PipelineSpec other = p;
  other.stages[2].options["vertical"] = true;
  Pipeline changed(other, pictures(10), {.batch = 4, .for_graph = true});
  test::expect_error(ErrorCode::usage, {"description"}, [&] { changed.restore(whole.state()); });
}
