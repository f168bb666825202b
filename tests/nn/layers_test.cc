// SPDX-License-Identifier: Apache-2.0
#include "nn/layers.h"

#include <doctest/doctest.h>

#include <cmath>

#include "interp/interpreter.h"
#include "nn/model.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::nn;

namespace {

std::vector<std::string> slot_names(const Graph& g) {
  std::vector<std::string> out;
  for (const ir::Slot& s : g.slots) out.push_back(cat(s.name, " ", s.type.str()));
  return out;
}

}  // namespace

TEST_CASE("init: draws depend on seed and name, and on nothing else") {
  Tensor a = draw(Init::normal(1), {1000}, DType::f32, 1, "a.weight");
  CHECK(a.same_bytes(draw(Init::normal(1), {1000}, DType::f32, 1, "a.weight")));
  CHECK(!a.same_bytes(draw(Init::normal(1), {1000}, DType::f32, 2, "a.weight")));
  CHECK(!a.same_bytes(draw(Init::normal(1), {1000}, DType::f32, 1, "b.weight")));
}

TEST_CASE("init: the distributions have the moments and bounds that they name") {
  auto moments = [](const Init& init) {
    Tensor t = draw(init, {100000}, DType::f32, 7, "w");
    double sum = 0, square = 0, low = INFINITY, high = -INFINITY;
    for (double v : to_doubles(t))
      sum += v, square += v * v, low = std::min(low, v), high = std::max(high, v);
    double mean = sum / 1e5;
    return std::array<double, 4>{mean, std::sqrt(square / 1e5 - mean * mean), low, high};
  };
  auto [m1, s1, l1, h1] = moments(Init::normal(0.5, 2));
  CHECK(m1 == doctest::Approx(2).epsilon(0.005));
  CHECK(s1 == doctest::Approx(0.5).epsilon(0.02));
  auto [m2, s2, l2, h2] = moments(Init::uniform(-1, 3));
  CHECK(m2 == doctest::Approx(1).epsilon(0.02));
  CHECK((l2 >= -1 && l2 < -0.99 && h2 < 3 && h2 > 2.99));
  auto [m3, s3, l3, h3] = moments(Init::truncated_normal(0.02));
  CHECK((l3 >= -0.04 && h3 <= 0.04));
  CHECK(s3 == doctest::Approx(0.02 * 0.8796).epsilon(0.02));  // of a normal cut at two deviations
}

TEST_CASE("init: bounds are those of the papers") {
  Dims w{64, 32, 3, 3};
  CHECK(kaiming_uniform(w, std::sqrt(5.0)).b == doctest::Approx(by_fan_in(w).b));
  CHECK(by_fan_in(w).b == doctest::Approx(1 / std::sqrt(288.0)));
  CHECK(kaiming_normal(w, 0, Fan::out).b == doctest::Approx(std::sqrt(2.0 / 576)));
  CHECK(xavier_uniform({30, 20}).b == doctest::Approx(std::sqrt(6.0 / 50)));
}

TEST_CASE("layers: parameters are named by scope as PyTorch names them") {
  Graph g;
  Net net(g, {.mode = Mode::train, .seed = 1});
  ValueId x = g.add_input(ir::Type::tensor(DType::f32, {2, 3, 8, 8}), "x");
  {
    auto at = net.scope("layer1.0");
    x = batch_norm(net, "bn1", conv(net, "conv1", x, 4, {.kernel = {3}, .padding = {1}, .bias = false}));
  }
  linear(net, "fc", global_avg_pool(net, x), 5);
  CHECK(slot_names(g) ==
        std::vector<std::string>{"layer1.0.conv1.weight f32[4,3,3,3]", "layer1.0.bn1.weight f32[4]",
                                 "layer1.0.bn1.bias f32[4]", "layer1.0.bn1.running_mean f32[4]",
                                 "layer1.0.bn1.running_var f32[4]", "fc.weight f32[5,4]", "fc.bias f32[5]"});
  CHECK(g.slots[3].next);
  CHECK(!g.slots[0].next);
}

TEST_CASE("layers: a second use of a name shares the parameter") {
  Graph g;
  Net net(g);
  ValueId x = g.add_input(ir::Type::tensor(DType::f32, {2, 3}), "x");
  linear(net, "fc", x, 3);
  linear(net, "fc", x, 3);
  CHECK(g.slots.size() == 2);
}

TEST_CASE("layers: statistics over the rows that count are those of the short batch") {
  auto run = [](int64_t rows, int64_t valid) {
    Graph g;
    Net net(g, {.mode = Mode::train, .seed = 1});
    ValueId x = g.add_input(ir::Type::tensor(DType::f32, {rows, 2, 3}), "x");
    if (valid) net.set_valid(net.builder().scalar(DType::i64, static_cast<double>(valid)));
    g.add_output(batch_norm(net, "bn", x), "y");
    Tensor in(DType::f32, {rows, 2, 3});
    for (int64_t i = 0; i < in.count(); ++i)
      in.set_double(i, std::sin(static_cast<double>(3 * i)) * (i < 18 ? 1 : 100));
    return interp::run(g, {in});
  };
  interp::Result whole = run(3, 0), padded = run(5, 3);
  for (int64_t i = 0; i < 18; ++i)
    CHECK(padded.outputs[0].tensor.get_double(i) ==
          doctest::Approx(whole.outputs[0].tensor.get_double(i)).epsilon(1e-5));
  for (size_t slot : {2, 3})
    for (int64_t c = 0; c < 2; ++c)
      CHECK(padded.next_state[slot].tensor.get_double(c) ==
            doctest::Approx(whole.next_state[slot].tensor.get_double(c)).epsilon(1e-5));
}

TEST_CASE("layers: dropout does nothing in eval mode and keeps the mean in train mode") {
  for (Mode mode : {Mode::eval, Mode::train}) {
    Graph g;
    Net net(g, {.mode = mode});
    ValueId x = g.add_input(ir::Type::tensor(DType::f32, {10000}), "x");
    g.add_output(dropout(net, x, 0.25), "y");
    Tensor y = interp::run(g, {Tensor::full(DType::f32, {10000}, 1)}).outputs[0].tensor;
    double sum = 0, zeros = 0;
    for (double v : to_doubles(y)) sum += v, zeros += v == 0;
    CHECK(sum / 10000 == doctest::Approx(1).epsilon(0.03));
    if (mode == Mode::eval) CHECK(zeros == 0);
    if (mode == Mode::train) CHECK(zeros / 10000 == doctest::Approx(0.25).epsilon(0.06));
  }
}

TEST_CASE("layers: local contrast normalisation by its formula, place by place") {
  constexpr int64_t kN = 2, kC = 3, kSize = 5, kReach = 1;
  Graph g;
  Net net(g);
  g.add_output(
      local_contrast_norm(net, g.add_input(ir::Type::tensor(DType::f32, {kN, kC, kSize, kSize}), "x"), 3),
      "y");
  Tensor x(DType::f32, {kN, kC, kSize, kSize});
  for (int64_t i = 0; i < x.count(); ++i)
    x.set_double(i, std::sin(static_cast<double>(7 * i)) + (i % 5 == 0));
  const Tensor y = interp::run(g, {x}).outputs[0].tensor;
  for (int64_t n = 0; n < kN; ++n) {
    auto at = [&](int64_t c, int64_t row, int64_t column) {
      return ((n * kC + c) * kSize + row) * kSize + column;
    };
    // The mean over the channels and the places of the window that are inside.
    auto mean = [&](int64_t row, int64_t column, auto&& value) {
      double sum = 0, count = 0;
      for (int64_t c = 0; c < kC; ++c)
        for (int64_t r = std::max<int64_t>(row - kReach, 0); r <= std::min(row + kReach, kSize - 1); ++r)
          for (int64_t q = std::max<int64_t>(column - kReach, 0); q <= std::min(column + kReach, kSize - 1);
               ++q) {
            sum += value(c, r, q);
            ++count;
          }
      return sum / count;
    };
    auto centred = [&](int64_t c, int64_t r, int64_t q) {
      return x.get_double(at(c, r, q)) -
             mean(r, q, [&](int64_t k, int64_t a, int64_t b) { return x.get_double(at(k, a, b)); });
    };
    auto deviation = [&](int64_t r, int64_t q) {
      return std::sqrt(
          mean(r, q, [&](int64_t k, int64_t a, int64_t b) { return std::pow(centred(k, a, b), 2); }));
    };
    double floor = 0;
    for (int64_t r = 0; r < kSize; ++r)
      for (int64_t q = 0; q < kSize; ++q) floor += deviation(r, q) / (kSize * kSize);
    for (int64_t c = 0; c < kC; ++c)
      for (int64_t r = 0; r < kSize; ++r)
        for (int64_t q = 0; q < kSize; ++q)
          CHECK(y.get_double(at(c, r, q)) ==
                doctest::Approx(centred(c, r, q) / std::max(deviation(r, q), floor)).epsilon(1e-4));
  }
}

TEST_CASE("layers: local contrast normalisation of a flat picture is zero, its window is odd") {
  Graph g;
  Net net(g);
  ValueId x = g.add_input(ir::Type::tensor(DType::f32, {1, 1, 9, 9}), "x");
  g.add_output(local_contrast_norm(net, x, 3), "y");
  for (double v : to_doubles(interp::run(g, {Tensor::full(DType::f32, {1, 1, 9, 9}, 5)}).outputs[0].tensor))
    CHECK(std::abs(v) < 1e-3);
  test::expect_error(ErrorCode::bad_shape, {"odd", "4"}, [&] { local_contrast_norm(net, x, 4); });
}

TEST_CASE("layers: what does not fit is refused by the layer's path") {
  Graph g;
  Net net(g);
  ValueId x = g.add_input(ir::Type::tensor(DType::f32, {2, 6, 8, 8}), "x");
  auto at = net.scope("stem");
  test::expect_error(ErrorCode::bad_shape, {"4 groups", "6 and 8", "stem.conv"},
                     [&] { conv(net, "conv", x, 8, {.kernel = {3}, .groups = 4}); });
  test::expect_error(ErrorCode::bad_shape, {"5 groups", "6 channels", "stem.gn"},
                     [&] { group_norm(net, "gn", x, 5); });
  test::expect_error(ErrorCode::bad_name, {"'rellu'", "relu6"}, [&] { activation(net, x, "rellu"); });
}

TEST_CASE("options that count are refused below the least that they can be") {
  const std::pair<const char*, ir::Attrs> wrong[] = {{"gpt2", {{"heads", int64_t{0}}}},
                                                     {"mlp", {{"classes", int64_t{0}}}},
                                                     {"mlp", {{"hidden", Ints{16, -1}}}},
                                                     {"bert", {{"layers", int64_t{-1}}}}};
  for (const auto& [model, options] : wrong)
    test::expect_error(ErrorCode::usage, {options.begin()->first.c_str(), "counts from", model},
                       [&] { ModelOptions(find_model(model), options); });
  ModelOptions(find_model("bert"), {{"layers", int64_t{0}}});
}
