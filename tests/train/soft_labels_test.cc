// SPDX-License-Identifier: Apache-2.0
// Labels that are shares of classes, as one_hot, mixup and cutmix make them.
#include <doctest/doctest.h>

#include <cmath>

#include "interp/interpreter.h"
#include "support/expect_error.h"
#include "train/loader.h"
#include "train/loss.h"

using namespace pelton;
using namespace pelton::train;

namespace {

std::unique_ptr<data::Pipeline> pipeline(int64_t classes, bool evaluation) {
  data::PipelineSpec p;
  p.stages = {{"one_hot", {{"classes", classes}}, ""}, {"mixup", {}, ""}};
  auto source = data::from_function(
      6,
      [](int64_t i) {
        data::Sample s;
        s.set("image", Tensor::full(DType::f32, {2}, static_cast<double>(i)));
        s.set("label", Tensor::scalar<int64_t>(i % 3));
        return s;
      },
      "six");
  return std::make_unique<data::Pipeline>(p, std::move(source),
                                          data::RunOptions{.batch = 6, .evaluation = evaluation});
}

Wanted wanted(bool soft) {
  Wanted w;
  w.inputs = {{"image", DType::f32, {2}}};
  w.target = "label";
  w.classes = 3;
  w.soft = soft;
  return w;
}

}  // namespace

TEST_CASE("loaders give shares for training and classes for evaluation") {
  Loader train(pipeline(3, false), wanted(true), 8), eval(pipeline(3, true), wanted(false), 8);
  CHECK(train.soft());
  CHECK_FALSE(eval.soft());
  TrainBatch b;
  REQUIRE(train.next(b));
  REQUIRE(b.target.dims() == Dims{8, 3});  // two rows of padding
  CHECK(b.target.dtype() == DType::f32);
  bool mixed = false;
  for (int64_t i = 0; i < 8; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < 3; ++k) {
      const double v = b.target.get_double(i * 3 + k);
      sum += v;
      mixed |= v > 0.01 && v < 0.99;
    }
    CHECK(sum == doctest::Approx(i < 6 ? 1 : 0));
  }
  CHECK(mixed);
  REQUIRE(eval.next(b));
  CHECK(to_ints(b.target) == std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 0});
  Loader other(pipeline(5, false), wanted(true), 8);
  test::expect_error(ErrorCode::bad_type, {"f32[6,5]", "3 classes"}, [&] { other.next(b); });
}

TEST_CASE("cross entropy of shares") {
  const std::vector<double> y = {1, 2, -1, 0.5, 0, 3, 2, 2, 2}, t = {0.25, 0.75, 0, 0, 0, 1, 0, 0, 0};
  for (double smoothing : {0.0, 0.3}) {
    CAPTURE(smoothing);
    ir::Graph g("loss");
    nn::Net net(g, {.draw = false});
    const auto logits = g.add_input(ir::Type::tensor(DType::f32, {3, 3}), "y");
    LossOptions o;
    o.soft = true;
    o.label_smoothing = smoothing;
    const ir::Type type = target_type(o, g.type(logits), 1);
    CHECK(type.dtype == DType::f32);
    const auto shares = g.add_input(type, "t");
    const Loss loss = build_loss(net, logits, shares, 1, o);
    g.add_output(loss.sum, "sum");
    g.add_output(loss.count, "count");
    g.add_output(count_correct(net, loss), "correct");
    const auto out =
        interp::run(g, {from_doubles(DType::f32, {3, 3}, y), from_doubles(DType::f32, {3, 3}, t)}).outputs;
    double expected = 0;
    for (size_t i = 0; i < 2; ++i) {  // the third row is empty
      double sum = 0;
      for (size_t k = 0; k < 3; ++k) sum += std::exp(y[3 * i + k]);
      for (size_t k = 0; k < 3; ++k)
        expected -= ((1 - smoothing) * t[3 * i + k] + smoothing / 3) * (y[3 * i + k] - std::log(sum));
    }
    CHECK(out.at(0).tensor.get_double(0) == doctest::Approx(expected).epsilon(1e-6));
    CHECK(out.at(1).tensor.get_double(0) == 2);
    CHECK(out.at(2).tensor.get_double(0) == 2);
  }
}
