// SPDX-License-Identifier: Apache-2.0
#include "train/recipe.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "train/loader.h"

using namespace pelton;
using namespace pelton::train;
using test::expect_error;

namespace {

const std::string kGood = R"(version = 1
seed = 3
model = { name = "mlp", features = 8, hidden = [4, 4], classes = 2 }
data = { synthetic = [8], batch = 16, holdout = 0.25 }
step = { epochs = 2, clip_norm = 1 }
optimizer = { name = "adamw", lr = 0.01, betas = [0.9, 0.95] }
schedule = { name = "cosine", warmup = 0.1 }
[[group]]
match = ["*.bias"]
weight_decay = 0
)";

void refused(ErrorCode code, std::initializer_list<const char*> words, const std::string& from,
             const std::string& to) {
  std::string text = kGood;
  size_t at = text.find(from);
  REQUIRE(at != text.npos);
  text.replace(at, from.size(), to);
  CAPTURE(text);
  expect_error(code, words, [&] { parse_recipe(text, "r.toml", ""); });
}

}  // namespace

TEST_CASE("recipe: every section is read") {
  Recipe r = parse_recipe(kGood, "r.toml", "");
  CHECK(r.seed == 3);
  CHECK(r.model == "mlp");
  CHECK(std::get<ir::Ints>(r.model_options.at("hidden")) == ir::Ints{4, 4});
  CHECK(r.data.synthetic == std::vector<int64_t>{8});
  CHECK(r.data.batch == 16);
  CHECK(r.epochs == 2);
  CHECK(r.clip_norm == 1);
  CHECK(r.groups.size() == 1);
  CHECK(*r.groups[0].weight_decay == 0);
  CHECK(r.output == "runs/r");
  Schedule s = make_schedule(r, 200, 100);
  CHECK(s.warmup == 20);
  CHECK(s.lr == 0.01);
}

TEST_CASE("recipe: what is stored reads as the same recipe") {
  Recipe a = parse_recipe(kGood, "r.toml", "", {"optimizer.lr=0.5"});
  Recipe b = parse_recipe(a.text, "r.toml", "");
  CHECK(b.text == a.text);
  CHECK(make_schedule(b, 10, 5).lr == 0.5);
}

TEST_CASE("recipe: --set overrides numbers, texts and keys that are not there") {
  Recipe r = parse_recipe(kGood, "r.toml", "",
                          {"optimizer.lr=0.5", "model.activation=gelu", "output.folder=x/y",
                           "step.label_smoothing=0.1", "model.hidden=[7]"});
  CHECK(std::get<std::string>(r.model_options.at("activation")) == "gelu");
  CHECK(r.output == "x/y");
  CHECK(r.loss.label_smoothing == 0.1);
  CHECK(std::get<ir::Ints>(r.model_options.at("hidden")) == ir::Ints{7});
  expect_error(ErrorCode::usage, {"no assignment", "optimizer.lr=0.1"},
               [] { parse_recipe(kGood, "r.toml", "", {"optimizer.lr"}); });
  expect_error(ErrorCode::usage, {"'seed' is not a table"},
               [] { parse_recipe(kGood, "r.toml", "", {"seed.a=1"}); });
}

TEST_CASE("recipe: mistakes are refused with line and nearest name") {
  refused(ErrorCode::usage, {"no key 'optimiser'", "r.toml line 6", "did you mean 'optimizer'?"},
          "optimizer =", "optimiser =");
  refused(ErrorCode::usage, {"'epoch'", "did you mean 'epochs'?"}, "epochs = 2", "epoch = 2");
  refused(ErrorCode::usage, {"epochs or steps"}, "epochs = 2", "epochs = 2, steps = 5");
  refused(ErrorCode::bad_name, {"'adamww'", "did you mean 'adamw'?"}, "\"adamw\"", "\"adamww\"");
  refused(ErrorCode::usage, {"'batch' is 0"}, "batch = 16", "batch = 0");
  refused(ErrorCode::usage, {"names 0 of train, synthetic and tokens"}, "synthetic = [8], ", "");
  refused(ErrorCode::usage, {"one of: constant, step, cosine", "did you mean \"cosine\"?"}, "\"cosine\"",
          "\"cosin\"");
  refused(ErrorCode::unsupported_version, {"recipe version 2"}, "version = 1", "version = 2");
  refused(ErrorCode::bad_format, {"no version"}, "version = 1", "");
  refused(ErrorCode::usage, {"group", "'mtach'", "did you mean 'match'?"}, "match", "mtach");
  refused(ErrorCode::usage, {"name or an onnx file"}, "name = \"mlp\", ", "");
  refused(ErrorCode::bad_format, {"r.toml line"}, "seed = 3", "seed = = 3");
  refused(ErrorCode::usage, {"'seed'", "whole number"}, "seed = 3", "seed = -3");
  refused(ErrorCode::usage, {"data.mean has 1 numbers, data.std 0"}, "batch = 16",
          "batch = 16, mean = [0.5]");
}

TEST_CASE("recipe: an inline source becomes a pipeline with the recipe's seed") {
  Recipe r = parse_recipe(R"(version = 1
seed = 5
model = { name = "mlp" }
data = { train = { kind = "npy", path = "x.npz", shuffle = true, stages = [{ op = "normalize" }] } }
step = { steps = 3 }
optimizer = { name = "sgd" }
)",
                          "r.toml", "folder");
  REQUIRE(r.data.train);
  CHECK(r.data.train->seed == 5);
  CHECK(r.data.train->source.kind == "npy");
  CHECK(r.data.train->source.shuffle);
  CHECK(r.data.train->folder == "folder");
  REQUIRE(r.data.train->stages.size() == 1);
  CHECK(r.data.train->stages[0].op == "normalize");
}

TEST_CASE("recipe: the schema names every section, option and optimizer") {
  nlohmann::json schema = nlohmann::json::parse(recipe_schema_json());
  for (const auto& [name, section] : recipe_sections()) {
    nlohmann::json j = schema["properties"][name];
    if (name == "group") j = j["items"];
    for (const data::OptionSpec& o : section.options) CHECK(j["properties"].contains(o.name));
  }
  CHECK(schema["properties"]["optimizer"]["oneOf"].size() == optimizers().size());
  CHECK(schema["additionalProperties"] == false);
}

TEST_CASE("token source: windows by stride, the last one whole") {
  test::TempDir folder;
  std::string path = folder / "a.txt";
  write_file(path, "abcdefghij");
  auto apart = token_source({path}, "text", 3, 3), close = token_source({path}, "text", 3, 2);
  CHECK(apart->size() == 3);
  CHECK(close->size() == 4);  // from 0, 2, 4, 6
  CHECK(apart->identity() != close->identity());
  data::Sample s = close->read(3);
  CHECK(s.at("tokens").get_int(0) == 'g');
  CHECK(s.at("label").get_int(2) == 'j');
}

TEST_CASE("recipe: fp16 scales the loss, between its bounds") {
  Recipe r = parse_recipe(kGood, "r", ".",
                          {"step.precision=fp16", "step.loss_scale=1024", "step.full_precision=[\"0\"]"});
  CHECK(r.scaling.on);
  CHECK(r.scaling.initial == 1024);
  CHECK(r.full_precision == std::vector<std::string>{"0"});
  CHECK(!parse_recipe(kGood, "r", ".", {"step.precision=bf16"}).scaling.on);
  refused(ErrorCode::usage, {"loss_scale is 0.5", "floor 1", "ceiling"}, "clip_norm = 1", "loss_scale = 0.5");
}
