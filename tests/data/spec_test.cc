// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "data/ops/stage.h"
#include "data/pipeline.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::data;
using test::expect_error;

namespace {

PipelineSpec parse(const std::string& text) {
  return parse_pipeline(text, "p.toml", "");
}
const std::string kHead = "version = 1\nsource = { kind = \"synthetic\", dims = [8, 8, 3], count = 4 }\n";
Pipeline pipeline(const std::string& stages) {
  return Pipeline(parse(kHead + stages), {.batch = 2});
}

}  // namespace

TEST_CASE("the form of the design: a pipeline with random options") {
  PipelineSpec p = parse(R"(
version = 1
seed = 12
source = { kind = "folder", path = "images", shuffle = true }
[[stage]]
op = "decode"
[[stage]]
op = "rotate"
device = "cpu"
angle = { uniform = [-10, 10] }
)");
  CHECK(p.seed == 12);
  CHECK(p.source.kind == "folder");
  CHECK(p.source.shuffle);
  REQUIRE(p.stages.size() == 2);
  CHECK(p.stages[1].options.at("angle").str() == "{ uniform = [-10, 10] }");
  CHECK(p.stages[1].where == "p.toml line 7");
}

TEST_CASE("mistakes are refused with the line and the nearest right name") {
  expect_error(ErrorCode::bad_format, {"no version"}, [] { parse("source = { kind = \"folder\" }"); });
  expect_error(ErrorCode::unsupported_version, {"version 2"}, [] { parse("version = 2"); });
  expect_error(ErrorCode::usage, {"no key 'sed'", "did you mean 'seed'?", "line 2"},
               [] { parse("version = 1\nsed = 3\n"); });
  expect_error(ErrorCode::usage, {"no source"}, [] { parse("version = 1\n"); });
  expect_error(ErrorCode::bad_format, {"line 2"}, [] { parse("version = 1\nx = [1,\n"); });
  // The library's own assertions, in every build.
  expect_error(ErrorCode::bad_format, {"not TOML", "p.toml"}, [] { parse("source = { w = [1,  }] }\n"); });
  expect_error(ErrorCode::usage, {"'match' = \"pilow\"", "did you mean \"pillow\"?"},
               [] { parse("version = 1\nmatch = \"pilow\"\n"); });
  expect_error(ErrorCode::usage, {"no distribution 'unifrm'", "did you mean 'uniform'?"},
               [] { parse(kHead + "[[stage]]\nop = \"rotate\"\nangle = { unifrm = [1, 2] }\n"); });
  expect_error(ErrorCode::usage, {"no stage 'rotat'", "did you mean 'rotate'?", "line 3"},
               [] { pipeline("[[stage]]\nop = \"rotat\"\n"); });
  expect_error(ErrorCode::usage, {"no option 'angel'", "did you mean 'angle'?"},
               [] { pipeline("[[stage]]\nop = \"rotate\"\nangel = 3\n"); });
  expect_error(ErrorCode::usage, {"needs the option 'angle'"},
               [] { pipeline("[[stage]]\nop = \"rotate\"\n"); });
  expect_error(ErrorCode::usage, {"'angle' = \"x\" is not a number"},
               [] { pipeline("[[stage]]\nop = \"rotate\"\nangle = \"x\"\n"); });
  expect_error(ErrorCode::usage, {"'filter' = \"bilinear\"", "nearest, box, linear"},
               [] { pipeline("[[stage]]\nop = \"resize\"\nsize = 4\nfilter = \"bilinear\"\n"); });
  expect_error(ErrorCode::usage, {"'size' is 0, outside 1"},
               [] { pipeline("[[stage]]\nop = \"resize\"\nsize = 0\n"); });
  expect_error(ErrorCode::usage, {"takes a list of numbers, not a distribution"},
               [] { pipeline("[[stage]]\nop = \"resize\"\nsize = { uniform = [1, 2] }\n"); });
  expect_error(ErrorCode::no_device, {"within a training step"},
               [] { pipeline("[[stage]]\nop = \"rotate\"\nangle = 1\ndevice = \"gpu\"\n"); });
  expect_error(ErrorCode::usage, {"there is no picture yet", "decode stage first"}, [] {
    Pipeline p = pipeline("[[stage]]\nop = \"resize\"\nsize = 4\n");
    Batch b;
    p.next(b);
  });
}

TEST_CASE("the schema lists every source and stage with its options") {
  const auto schema = nlohmann::json::parse(pipeline_schema_json());
  CHECK(schema["properties"]["version"]["const"] == 1);
  CHECK(schema["$defs"]["stage"]["oneOf"].size() == stage_kinds().size());
  CHECK(schema["$defs"]["source"]["oneOf"].size() == source_kinds().size() + 2);
  for (const auto& stage : schema["$defs"]["stage"]["oneOf"])
    if (stage["properties"]["op"]["const"] == "rotate") {
      CHECK(stage["required"] == nlohmann::json({"op", "angle"}));
      CHECK(stage["additionalProperties"] == false);
      CHECK(stage["properties"]["angle"]["anyOf"][1]["$ref"] == "#/$defs/distribution");
    }
}

TEST_CASE("shuffle windows and buckets in TOML") {
  const PipelineSpec p = parse_pipeline(
      "version = 1\nbucket = 20\nsource = { kind = \"tar\", shards = \"a.tar\", shuffle = true, "
      "shuffle_window = 500 }\n",
      "t.toml", "");
  CHECK(p.bucket == 20);
  CHECK(p.source.shuffle_window == 500);
  test::expect_error(ErrorCode::usage, {"'bucket' is not a whole number", "t.toml line 2"}, [] {
    parse_pipeline("version = 1\nbucket = -1\nsource = { kind = \"tar\" }\n", "t.toml", "");
  });
  test::expect_error(ErrorCode::usage, {"'shuffle_window'", "line 2"}, [] {
    parse_pipeline("version = 1\nsource = { kind = \"tar\", shuffle_window = 1.5 }\n", "t.toml", "");
  });
}

TEST_CASE("concat in TOML") {
  Pipeline p(parse("version = 1\nsource = { kind = \"concat\", sources = [{ kind = \"synthetic\", dims = "
                   "[2], count = 3 }, { kind = \"synthetic\", dims = [2], count = 4 }] }\n"),
             {.batch = 7});
  Batch b;
  REQUIRE(p.next(b));
  CHECK(b.count() == 7);
  CHECK(b.at("image").dims() == Dims{7, 2});
}
