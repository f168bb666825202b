// SPDX-License-Identifier: Apache-2.0
// Every model against torchvision, timm, transformers or torch: the same parameter names and shapes, and the
// same outputs on weights by formula (expect/make_models.py stored them).
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hash.h"
#include "compiler/compile.h"
#include "nn/model.h"
#include "register/registry.h"
#include "runtime/executable.h"
#include "support/expect_error.h"
#include "train/formula.h"

using namespace pelton;
using Json = nlohmann::json;

namespace {

ir::Attrs options_of(const Json& j) {
  ir::Attrs out;
  for (const auto& [key, v] : j.items()) {
    if (v.is_array())
      out[key] = v.get<ir::Ints>();
    else if (v.is_string())
      out[key] = v.get<std::string>();
    else
      out[key] = v.get<int64_t>();
  }
  return out;
}

Tensor run_model(ir::Graph graph, const std::vector<Tensor>& inputs) {
  device::Target target = device::detect_cpu(0);
  auto plan = std::make_shared<runtime::Plan>(compiler::compile(std::move(graph), target, {}, registry()));
  auto executable = runtime::Executable::create(plan, registry(), target);
  return executable->context().run_tensors(inputs)[0];
}

}  // namespace

TEST_CASE("models: names and outputs are those of torchvision, timm, transformers and torch") {
  Json all = Json::parse(read_file("tests/train/expect/models.json"));
  for (const Json& c : all["cases"]) {
    std::string name = c["model"];
    CAPTURE(name);
    const nn::ModelDef& def = nn::find_model(name);
    nn::ModelOptions options(def, options_of(c["options"]));
    int64_t batch = 0;
    std::vector<Tensor> inputs;
    for (const nn::ModelInput& in : def.inputs(options)) {
      const Json& j = c["inputs"][in.name];
      Dims dims = j["shape"].get<Dims>();
      batch = dims[0];
      int64_t high = j["high"];
      if (in.dtype == DType::i64) {
        inputs.push_back(test::tokens(in.name, dims, c["options"]["vocabulary"]));
      } else if (in.name == "mask") {
        Tensor mask = Tensor::full(DType::f32, dims, 1);
        for (int64_t i = 10; i < 16; ++i) mask.set_double(16 + i, 0);  // the second line is padded
        inputs.push_back(mask);
      } else {
        CHECK(high == 0);
        inputs.push_back(test::uniform_tensor(in.name, dims));
      }
    }
    nn::BuiltModel model = nn::build_model(def, options, batch, {.draw = false});
    std::string lines = test::fill(model.graph);
    CAPTURE(lines);
    CHECK(std::count(lines.begin(), lines.end(), '\n') == c["parameter_count"].get<int64_t>());
    CHECK(sha256(lines).str() == c["parameters"].get<std::string>());
    Tensor y = run_model(std::move(model.graph), inputs);
    CHECK(y.dims() == c["shape"].get<Dims>());
    // f32 on both sides, sums of up to 50 layers in another order: 2e-4 of the output's own size.
    double rms = c["rms"], square = 0;
    for (int64_t i = 0; i < y.count(); ++i) square += y.get_double(i) * y.get_double(i);
    CHECK(std::sqrt(square / static_cast<double>(y.count())) == doctest::Approx(rms).epsilon(2e-4));
    for (size_t i = 0; i < c["first"].size(); ++i) {
      double expected = c["first"][i], got = y.get_double(static_cast<int64_t>(i));
      CAPTURE(i);
      CAPTURE(expected);
      CAPTURE(got);
      CHECK(std::abs(got - expected) <= 2e-4 * rms);
    }
  }
}

TEST_CASE("models: parameters start as those of torchvision, timm, transformers and torch") {
  constexpr int64_t kFewest =
      10000;  // elements of a parameter that is compared: its deviation is known to 0.7%
  constexpr double kApart = 0.04;
  const Json all = Json::parse(read_file("tests/train/expect/starts.json"));
  for (const Json& c : all) {
    const std::string name = c["model"];
    CAPTURE(name);
    const nn::ModelDef& def = nn::find_model(name);
    const nn::BuiltModel model = nn::build_model(def, nn::ModelOptions(def, options_of(c["options"])), 1,
                                                 {.mode = nn::Mode::train, .seed = 5});
    size_t compared = 0;
    for (const ir::Slot& s : model.graph.slots) {
      if (s.kind != ir::SlotKind::parameter || s.initial.count() < kFewest) continue;
      CAPTURE(s.name);
      REQUIRE(c["parameters"].contains(s.name));
      ++compared;
      double square = 0, sum = 0, most = 0;
      for (double v : to_doubles(s.initial)) {
        square += v * v;
        sum += v;
        most = std::max(most, std::abs(v));
      }
      const auto n = static_cast<double>(s.initial.count());
      const double deviation = std::sqrt(square / n - sum / n * (sum / n));
      CHECK(deviation == doctest::Approx(c["parameters"][s.name][0].get<double>()).epsilon(kApart));
      CHECK(std::abs(sum / n) <= kApart * deviation);
      // The largest of uniform numbers is 1.73 deviations, of normal ones more than three.
      CHECK((most < 1.8 * deviation) == c["parameters"][s.name][1].get<bool>());
    }
    CHECK(compared == c["parameters"].size());
  }
}

TEST_CASE("models: a frozen graph gives what the one with slots gives") {
  const nn::ModelDef& def = nn::find_model("small_cnn");
  nn::ModelOptions options(def, {{"size", int64_t{8}}, {"widths", ir::Ints{4}}, {"hidden", int64_t{8}}});
  nn::BuiltModel model = nn::build_model(def, options, Dim::symbol("N"), {.draw = false});
  test::fill(model.graph);
  ir::Graph frozen = model.graph;
  nn::freeze(frozen);
  CHECK(frozen.slots.empty());
  Tensor x = test::uniform_tensor("image", {3, 1, 8, 8});
  Tensor a = run_model(model.graph, {x}), b = run_model(frozen, {x});
  for (int64_t i = 0; i < a.count(); ++i)
    CHECK(a.get_double(i) == doctest::Approx(b.get_double(i)).epsilon(1e-5));
}

TEST_CASE("models: wrong names and options are refused with the nearest right one") {
  test::expect_error(ErrorCode::bad_name, {"resnet81", "did you mean 'resnet18'?"},
                     [] { nn::find_model("resnet81"); });
  const nn::ModelDef& mlp = nn::find_model("mlp");
  test::expect_error(ErrorCode::usage, {"'hiden'", "model 'mlp'", "did you mean 'hidden'?"}, [&] {
    nn::ModelOptions(mlp, {{"hiden", ir::Ints{3}}});
  });
  test::expect_error(ErrorCode::usage, {"'classes'", "integer", "text"}, [&] {
    nn::ModelOptions(mlp, {{"classes", std::string("ten")}});
  });
  const nn::ModelDef& vit = nn::find_model("vit");
  test::expect_error(ErrorCode::bad_shape, {"patches of 16", "pictures of 30"}, [&] {
    nn::build_model(vit, nn::ModelOptions(vit, {{"size", int64_t{30}}}), 1, {.draw = false});
  });
}
