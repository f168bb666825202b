// SPDX-License-Identifier: Apache-2.0
// Optimizers against torch.optim, timm and NumPy (expect/make_optimizers.py), schedules against their
// formulas.
#include "train/optimizer/optimizer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "interp/interpreter.h"
#include "support/expect_error.h"
#include "train/formula.h"
#include "train/schedule.h"
#include "train/step.h"

using namespace pelton;
using namespace pelton::train;
using Json = nlohmann::json;

namespace {

data::Options options_of(const Json& j) {
  data::Options out;
  for (const auto& [key, v] : j.items()) {
    if (v.is_array())
      out[key] = v.get<std::vector<double>>();
    else if (v.is_boolean())
      out[key] = v.get<bool>();
    else
      out[key] = v.get<double>();
  }
  return out;
}

// The values of p after `updates` updates on gradients by formula.
Tensor optimise(const std::string& optimizer, const data::Options& options, const std::string& name,
                const Dims& dims, int64_t updates) {
  const OptimizerDef& def = find_optimizer(optimizer);
  data::Args args(def.schema, options, "test");
  ir::Graph g;
  ir::Builder b(g);
  ir::Slot p{.name = name, .type = ir::Type::tensor(DType::f32, to_shape(dims))};
  p.initial = test::uniform_tensor(name, dims);
  ir::ValueId value = g.add_slot(p);
  Update u(b, args, name);
  u.value = value;
  u.grad = g.add_input(p.type, "grad");
  u.count = g.add_input(ir::Type::tensor(DType::f64, {}), "count");
  u.lr = b.scalar(DType::f32, args.number("lr"));
  u.weight_decay = args.number("weight_decay");
  ir::ValueId fresh = def.update(u);
  g.slots[0].next = fresh;
  for (auto [slot, v] : u.next) g.slots[slot].next = v;
  std::vector<ir::HostValue> state;
  for (int64_t i = 0; i < updates; ++i)
    state = interp::run(g,
                        {test::uniform_tensor(cat("grad ", i, " ", name), dims),
                         Tensor::scalar<double>(static_cast<double>(i + 1))},
                        state)
                .next_state;
  return state[0].tensor;
}

}  // namespace

TEST_CASE("optimizers: five updates are those of torch.optim, timm and NumPy") {
  Json all = Json::parse(read_file("tests/train/expect/optimizers.json"));
  for (const Json& c : all["cases"]) {
    std::string optimizer = c["name"], options = c["options"].dump();
    for (const auto& [name, dims] : std::map<std::string, Dims>{{"w", {3, 4}}, {"b", {4}}}) {
      CAPTURE(optimizer);
      CAPTURE(options);
      CAPTURE(name);
      Tensor p = optimise(optimizer, options_of(c["options"]), name, dims, 5);
      // Parameters are of size 1; f32 on both sides.
      for (int64_t i = 0; i < p.count(); ++i) {
        double expected = c["result"][name][static_cast<size_t>(i)];
        CHECK(std::abs(p.get_double(i) - expected) < 5e-6);
      }
    }
  }
}

TEST_CASE("optimizers: wrong names and options are refused") {
  test::expect_error(ErrorCode::bad_name, {"'adamx'", "did you mean 'adam'?"},
                     [] { find_optimizer("adamx"); });
  test::expect_error(ErrorCode::usage, {"'betas'", "[0, 1)"}, [] {
    optimise("adam", {{"betas", std::vector<double>{0.9, 1.0}}}, "w", {2}, 1);
  });
  test::expect_error(ErrorCode::usage, {"'momentun'", "did you mean 'momentum'?"}, [] {
    optimise("sgd", {{"momentun", 0.9}}, "w", {2}, 1);
  });
}

TEST_CASE("schedules: known points of every form") {
  Schedule s;
  s.lr = 2;
  s.total = 100;
  CHECK(schedule_rate(s, 50) == 2);
  s.warmup = 10;
  s.warmup_from = 0.5;
  CHECK(schedule_rate(s, 0) == doctest::Approx(2 * 0.55));
  CHECK(schedule_rate(s, 9) == doctest::Approx(2));
  s.name = "cosine";
  s.end = 0.1;
  CHECK(schedule_rate(s, 10) == doctest::Approx(2));
  CHECK(schedule_rate(s, 55) == doctest::Approx(1.1));
  CHECK(schedule_rate(s, 100) == doctest::Approx(0.2));
  s.name = "polynomial";
  s.power = 2;
  CHECK(schedule_rate(s, 55) == doctest::Approx(2 * (0.1 + 0.9 * 0.25)));
  s = {};
  s.name = "step";
  s.lr = 1;
  s.at = {30, 60};
  CHECK(schedule_rate(s, 29) == doctest::Approx(1));
  CHECK(schedule_rate(s, 30) == doctest::Approx(0.1));
  CHECK(schedule_rate(s, 99) == doctest::Approx(0.01));
  s.name = "one_cycle";
  s.total = 100;
  CHECK(schedule_rate(s, 0) == doctest::Approx(0.04));
  CHECK(schedule_rate(s, 29) == doctest::Approx(1));
  CHECK(schedule_rate(s, 99) == doctest::Approx(4e-6));
}

TEST_CASE("schedules: the graph's rate is the plain one at every update") {
  for (const char* name : {"constant", "step", "cosine", "one_cycle", "polynomial"}) {
    Schedule s;
    s.name = name;
    s.total = 20;
    s.warmup = 4;
    s.at = {7, 15};
    s.power = 1.5;
    ir::Graph g;
    ir::Builder b(g);
    ir::ValueId done = g.add_input(ir::Type::tensor(DType::i64, {}), "done");
    g.add_output(schedule_rate(b, s, done), "lr");
    for (int64_t i = 0; i < 22; ++i) {
      CAPTURE(name);
      CAPTURE(i);
      double got = interp::run(g, {Tensor::scalar<int64_t>(i)}).outputs[0].tensor.get_double(0);
      CHECK(got == doctest::Approx(schedule_rate(s, i)).epsilon(1e-6));
    }
  }
}

TEST_CASE("patterns: a star stands for any text") {
  CHECK(matches("*.bias", "layer1.0.conv.bias"));
  CHECK(matches("layer*.weight", "layer1.0.weight"));
  CHECK(matches("fc.weight", "fc.weight"));
  CHECK(!matches("fc", "fc.weight"));
  CHECK(!matches("*.bias", "bias_like"));
  CHECK(matches("*", ""));
}

TEST_CASE("muon: matrices of one shape are one batch of products, and move as they do alone") {
  const OptimizerDef& def = find_optimizer("muon");
  data::Args args(def.schema, {}, "test");
  const std::vector<Dims> shapes = {{6, 4}, {6, 4}, {3, 5}, {6, 2, 2}, {7}};
  for (bool together : {false, true}) {
    ir::Graph g;
    ir::Builder b(g);
    std::vector<Update> updates;
    std::vector<Update*> all;
    updates.reserve(shapes.size());
    std::vector<ir::HostValue> in;
    for (size_t i = 0; i < shapes.size(); ++i) {
      ir::Slot p{.name = cat("p", i), .type = ir::Type::tensor(DType::f32, to_shape(shapes[i]))};
      p.initial = test::uniform_tensor(p.name, shapes[i]);
      const ir::Type type = p.type;
      Update& u = updates.emplace_back(b, args, p.name);
      all.push_back(&u);
      u.value = g.add_slot(std::move(p));
      u.grad = g.add_input(type, cat("grad", i));
      in.emplace_back(test::uniform_tensor(cat("grad ", i), shapes[i]));
    }
    const ir::ValueId count = g.add_input(ir::Type::tensor(DType::f64, {}), "count");
    in.emplace_back(Tensor::scalar<double>(1));
    for (Update& u : updates) u.count = count, u.lr = b.scalar(DType::f32, 0.5);
    if (together) def.prepare(all);
    for (Update& u : updates) g.add_output(def.update(u), u.name);
    int64_t products = 0;
    for (ir::NodeId id : g.order()) products += g[id].is("matmul");
    // Of five iterations, for [6,4] and what counts as such, and for [3,5].
    CHECK(products == 5 * 3 * (together ? 2 : 4));
    static std::vector<ir::HostValue> alone;
    const std::vector<ir::HostValue> got = interp::run(g, in).outputs;
    if (!together) alone = got;
    for (size_t i = 0; i < got.size(); ++i) CHECK(got[i].tensor.same_bytes(alone[i].tensor));
  }
}
