// SPDX-License-Identifier: Apache-2.0
// The step as a graph: what it changes, what it leaves alone, and that ways of batching agree.
#include "train/step.h"

#include <doctest/doctest.h>

#include <cmath>

#include "register/registry.h"
#include "support/expect_error.h"
#include "train/formula.h"
#include "train/program.h"

using namespace pelton;
using namespace pelton::train;

namespace {

struct Setup {
  std::unique_ptr<Trainable> model;
  StepOptions options;
};

Setup small_mlp(int64_t batch) {
  Setup s;
  s.model = named_model("mlp", {{"features", int64_t{6}}, {"hidden", ir::Ints{5}}, {"classes", int64_t{3}}});
  s.options.batch = batch;
  s.options.optimizer_options = {{"momentum", 0.9}};
  s.options.schedule.lr = 0.1;
  s.options.seed = 1;
  return s;
}

Program program(const Setup& s) {
  return Program(build_train_step(*s.model, s.options), device::detect_cpu(0), {}, registry());
}

std::vector<Tensor> batch(int64_t rows, const Dims& sample, int64_t classes) {
  Dims dims = sample;
  dims.insert(dims.begin(), rows);
  return {test::uniform_tensor("x", dims), test::tokens("y", {rows}, classes)};
}

double largest_difference(const Program& a, const Program& b) {
  double worst = 0;
  for (const auto& [name, t] : a.all_state()) {
    const Tensor& u = b.state(name);
    for (int64_t i = 0; i < t.count(); ++i)
      worst = std::max(worst, std::abs(t.get_double(i) - u.get_double(i)));
  }
  return worst;
}

}  // namespace

TEST_CASE("step: the loss falls, the counter counts, the rate follows the schedule") {
  Setup s = small_mlp(16);
  s.options.schedule.name = "polynomial";
  s.options.schedule.total = 20;
  s.options.schedule.lr = 0.5;
  Program p = program(s);
  std::vector<Tensor> in = batch(16, {6}, 3);
  double first = 0, last = 0;
  for (int64_t i = 0; i < 20; ++i) {
    auto out = p.run(in, {});
    last = out.at("loss").get_double(0);
    if (i == 0) first = last;
    CHECK(out.at("lr").get_double(0) == doctest::Approx(0.5 * static_cast<double>(20 - i) / 20));
    CHECK(out.at("count").get_double(0) == 16);
  }
  CHECK(last < 0.8 * first);
  CHECK(p.state("updates").get_int(0) == 20);
}

TEST_CASE("step: micro-batches give the update of the whole batch") {
  Setup whole = small_mlp(12), parts = small_mlp(12);
  parts.options.accumulate = 3;
  Program a = program(whole), b = program(parts);
  for (int i = 0; i < 3; ++i) {
    double la = a.run(batch(12, {6}, 3), {}).at("loss").get_double(0);
    double lb = b.run(batch(12, {6}, 3), {}).at("loss").get_double(0);
    CHECK(la == doctest::Approx(lb).epsilon(1e-6));
  }
  CHECK(largest_difference(a, b) < 1e-6);
  parts.options.accumulate = 5;
  test::expect_error(ErrorCode::usage, {"12", "5 micro-batches", "step.accumulate"},
                     [&] { build_train_step(*parts.model, parts.options); });
}

TEST_CASE("step: a padded short batch gives the update of the unpadded one") {
  auto make = [](int64_t rows, bool masked) {
    Setup s;
    s.model = named_model(
        "small_cnn",
        {{"size", int64_t{8}}, {"widths", ir::Ints{4}}, {"hidden", int64_t{8}}, {"classes", int64_t{3}}});
    s.options.batch = rows;
    s.options.masked = masked;
    s.options.schedule.lr = 0.1;
    return s;
  };
  Program exact = program(make(5, false)), padded = program(make(8, true));
  std::vector<Tensor> in = batch(5, {1, 8, 8}, 3), big = batch(8, {1, 8, 8}, 3);
  for (int64_t i = 5 * 64; i < 8 * 64; ++i) big[0].set_double(i, 1000);  // padding must not be seen
  big.push_back(Tensor::scalar<int64_t>(5));
  for (int i = 0; i < 3; ++i) {
    double a = exact.run(in, {}).at("loss").get_double(0), b = padded.run(big, {}).at("loss").get_double(0);
    CHECK(a == doctest::Approx(b).epsilon(1e-5));
  }
  CHECK(largest_difference(exact, padded) < 1e-5);
}

TEST_CASE("step: frozen parameters stay, groups have their own rate and decay") {
  Setup s = small_mlp(8);
  s.options.groups = {{{"0.*"}, 1, {}, true, 0}, {{"*.bias"}, 0, 0.0, false, 0}};
  StepGraph graph = build_train_step(*s.model, s.options);
  CHECK(graph.trained == std::vector<std::string>{"2.weight", "2.bias"});
  for (const ir::Slot& slot : graph.graph.slots) CHECK(slot.name != "optimizer.momentum.0.weight");
  Program p = program(s);
  auto before = p.all_state();
  p.run(batch(8, {6}, 3), {});
  for (const char* name : {"0.weight", "0.bias", "2.bias"}) CHECK(p.state(name).same_bytes(before[name]));
  CHECK(!p.state("2.weight").same_bytes(before["2.weight"]));
  s.options.groups = {{{"*"}, 1, {}, true, 0}};
  test::expect_error(ErrorCode::usage, {"frozen", "nothing is left to train", "mlp"},
                     [&] { build_train_step(*s.model, s.options); });
}

TEST_CASE("step: clipping bounds the update, the moving average follows") {
  Setup s = small_mlp(8);
  s.options.optimizer_options = {};
  s.options.clip_norm = 0.01;
  s.options.average = 0.75;
  Program p = program(s);
  auto before = p.all_state();
  auto out = p.run(batch(8, {6}, 3), {});
  CHECK(out.at("grad_norm").get_double(0) > 0.01);
  double square = 0;
  for (const char* name : {"0.weight", "0.bias", "2.weight", "2.bias"})
    for (int64_t i = 0; i < before[name].count(); ++i) {
      double d = p.state(name).get_double(i) - before[name].get_double(i);
      square += d * d;
      double average = 0.75 * before[name].get_double(i) + 0.25 * p.state(name).get_double(i);
      CHECK(p.state(cat("average.", name)).get_double(i) == doctest::Approx(average).epsilon(1e-5));
    }
  CHECK(std::sqrt(square) == doctest::Approx(0.1 * 0.01).epsilon(1e-3));
}

TEST_CASE("step: gradients below the limit are not clipped") {
  Setup s = small_mlp(8);
  Program plain = program(s);
  s.options.clip_norm = 1000;
  Program clipped = program(s);
  plain.run(batch(8, {6}, 3), {});
  clipped.run(batch(8, {6}, 3), {});
  CHECK(largest_difference(plain, clipped) < 1e-7);
}

TEST_CASE("step: a loss that is not finite changes nothing, and the first such node is named") {
  Setup s = small_mlp(8);
  s.model = named_model("mlp", {{"features", int64_t{6}},
                                {"hidden", ir::Ints{5}},
                                {"classes", int64_t{3}},
                                {"activation", std::string("gelu")}});
  Program p = program(s);
  std::vector<Tensor> in = batch(8, {6}, 3);
  p.run(in, {});
  auto before = p.all_state();
  in[0].set_double(3, NAN);
  CHECK(std::isnan(p.run(in, {}).at("loss").get_double(0)));
  for (const auto& [name, t] : before) CHECK(p.state(name).same_bytes(t));
  CHECK(p.first_not_finite(in, {}).find("0") != std::string::npos);
}

TEST_CASE("step: label smoothing and mixing agree with their formulas") {
  Setup s = small_mlp(4);
  s.options.loss.label_smoothing = 0.2;
  s.options.mix = true;
  Program smooth = program(s);
  Setup plain = small_mlp(4);
  plain.options.mix = true;
  std::vector<Tensor> in = batch(4, {6}, 3);
  in.push_back(Tensor::scalar<float>(1));
  // Weight 1 is the batch itself.
  double mixed = program(plain).run(in, {}).at("loss").get_double(0);
  double unmixed = program(small_mlp(4)).run(batch(4, {6}, 3), {}).at("loss").get_double(0);
  CHECK(mixed == doctest::Approx(unmixed).epsilon(1e-6));
  // Smoothing by s adds s times the mean over classes of what each class would cost, less its own.
  double costs = 0;
  for (int64_t k = 0; k < 3; ++k) {
    std::vector<Tensor> one = batch(4, {6}, 3);
    for (int64_t i = 0; i < 4; ++i) one[1].set_int(i, k);
    costs += program(small_mlp(4)).run(one, {}).at("loss").get_double(0) / 3;
  }
  double expected = 0.8 * unmixed + 0.2 * costs;
  CHECK(smooth.run(in, {}).at("loss").get_double(0) == doctest::Approx(expected).epsilon(1e-5));
}

TEST_CASE("evaluation: a row counts among the best five where its label is, and where it is the best one") {
  Setup s = small_mlp(1);
  s.model = named_model("mlp", {{"features", int64_t{6}}, {"hidden", ir::Ints{5}}, {"classes", int64_t{7}}});
  Program p(build_eval_step(*s.model, s.options), device::detect_cpu(0), {}, registry());
  for (const std::string& name : p.state_names())
    p.set_state(name, test::formula_parameter(name, p.state(name).dims()));
  // Of one sample, with each label: the loss tells the order of its classes.
  std::vector<std::tuple<double, bool, bool>> labels;
  for (int64_t k = 0; k < 7; ++k) {
    const auto out = p.run(std::vector<Tensor>{test::uniform_tensor("x", {1, 6}),
                                               Tensor::full(DType::i64, {1}, k), Tensor::scalar<int64_t>(1)},
                           {});
    labels.emplace_back(out.at("loss_sum").get_double(0), out.at("correct").get_double(0) == 1,
                        out.at("top5").get_double(0) == 1);
  }
  std::sort(labels.begin(), labels.end());
  for (size_t i = 0; i < labels.size(); ++i) {
    CAPTURE(i);
    CHECK(std::get<1>(labels[i]) == (i == 0));
    CHECK(std::get<2>(labels[i]) == (i < 5));
  }
}

TEST_CASE("step: a memory budget changes what is kept and no update") {
  Setup s = small_mlp(64);
  s.model = named_model(
      "mlp", {{"features", int64_t{6}}, {"hidden", ir::Ints{32, 32, 32, 32}}, {"classes", int64_t{3}}});
  Program plain = program(s);
  StepGraph all = build_train_step(*s.model, s.options);
  CHECK(all.recomputed.values == 0);
  s.options.memory_budget_bytes = 1;
  StepGraph tight = build_train_step(*s.model, s.options);
  CHECK(tight.recomputed.values > 0);
  CHECK(tight.recomputed.kept_bytes < tight.recomputed.kept_bytes_before);
  CHECK(tight.activation_budget_bytes == 0);
  Program again = program(s);
  std::vector<Tensor> in = batch(64, {6}, 3);
  for (int i = 0; i < 3; ++i) {
    plain.run(in, {});
    again.run(in, {});
  }
  CHECK(largest_difference(plain, again) <= 1e-6);
}

TEST_CASE("step: classes that are added to a large head change no loss and no update") {
  auto make = [](int64_t multiple) {
    Setup s;
    s.model = named_model("gpt2", {{"vocabulary", int64_t{1033}},
                                   {"length", int64_t{4}},
                                   {"positions", int64_t{4}},
                                   {"width", int64_t{8}},
                                   {"layers", int64_t{1}},
                                   {"heads", int64_t{2}},
                                   {"dropout", 0.0}});
    s.options.batch = 2;
    s.options.schedule.lr = 0.5;
    s.options.accuracy = true;
    s.options.class_multiple = multiple;
    return s;
  };
  StepGraph grown = build_train_step(*make(64).model, make(64).options);
  bool found = false;
  for (ir::NodeId id : grown.graph.order())
    if (grown.graph[id].is("cross_entropy"))
      found = grown.graph.type(grown.graph[id].inputs[0]).shape.back() == Dim(1088);
  CHECK(found);
  Program plain = program(make(1)), padded = program(make(64));
  std::vector<Tensor> in = {test::tokens("t", {2, 4}, 1033), test::tokens("y", {2, 4}, 1033)};
  for (int i = 0; i < 3; ++i) {
    auto a = plain.run(in, {}), b = padded.run(in, {});
    CHECK(a.at("loss").get_double(0) == doctest::Approx(b.at("loss").get_double(0)).epsilon(1e-6));
    CHECK(a.at("correct").get_double(0) == b.at("correct").get_double(0));
  }
  CHECK(largest_difference(plain, padded) < 1e-5);
}
