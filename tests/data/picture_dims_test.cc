// SPDX-License-Identifier: Apache-2.0
// Which sources tell the size of their stored pictures, and what a training step takes by it.
#include <doctest/doctest.h>

#include "data/lower.h"
#include "data/pipeline.h"
#include "data/stages.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"
#include "tensor/npy.h"

using namespace pelton;
using namespace pelton::data;

namespace {

SourceSpec npy(const std::string& path, const std::string& field) {
  return {"npy", {{"path", path}, {"field", field}}};
}
SourceSpec synthetic(std::vector<double> dims, const std::string& dtype = "u8") {
  return {"synthetic", {{"dims", std::move(dims)}, {"dtype", dtype}, {"count", 6.0}}};
}
Dims dims_of(const SourceSpec& source, std::string_view field) {
  return open_source(source, "", 1, "test")->picture_dims(field);
}

}  // namespace

TEST_CASE("picture dims: arrays, raw files and made-up samples tell them, by the field's name") {
  const test::TempDir dir;
  save_npy(dir / "u8.npy", Tensor::zeros(DType::u8, {5, 8, 6, 3}));
  save_npy(dir / "f32.npy", Tensor::zeros(DType::f32, {5, 8, 6, 3}));
  save_npy(dir / "flat.npy", Tensor::zeros(DType::u8, {5, 8, 6}));
  CHECK(dims_of(npy(dir / "u8.npy", "photo"), "photo") == Dims{8, 6, 3});
  CHECK(dims_of(npy(dir / "u8.npy", "photo"), "image").empty());
  CHECK(dims_of(npy(dir / "f32.npy", "photo"), "photo").empty());
  CHECK(dims_of(npy(dir / "flat.npy", "photo"), "photo").empty());
  CHECK(dims_of(synthetic({8, 6, 3}), "image") == Dims{8, 6, 3});
  CHECK(dims_of(synthetic({8, 6, 3}, "f32"), "image").empty());
  CHECK(dims_of(synthetic({8, 6}), "image").empty());
  const SourceSpec raw = {"raw",
                          {{"path", dir / "u8.npy"},
                           {"dims", std::vector<double>{8, 6, 3}},
                           {"dtype", "u8"},
                           {"skip_bytes", 128.0},
                           {"field", "image"}}};
  CHECK(dims_of(raw, "image") == Dims{8, 6, 3});
  CHECK(dims_of(raw, "data").empty());
}

TEST_CASE("picture dims: those of concat and mix are their parts', if they are equal") {
  const SourceSpec one = synthetic({8, 6, 3}), same = synthetic({8, 6, 3}), other = synthetic({6, 8, 3}),
                   none = synthetic({8, 6, 3}, "f32");
  for (const bool mixed : {false, true}) {
    CAPTURE(mixed);
    auto of = [&](std::vector<SourceSpec> parts) {
      SourceSpec s;
      s.kind = mixed ? "mix" : "concat";
      if (mixed) s.options = {{"weights", std::vector<double>{1, 1}}, {"count", 9.0}};
      s.parts = std::move(parts);
      return dims_of(s, "image");
    };
    CHECK(of({one, same}) == Dims{8, 6, 3});
    CHECK(of({one, other}).empty());
    CHECK(of({one, none}).empty());
    CHECK(of({none, one}).empty());
  }
}

TEST_CASE("picture dims: a step's resize goes by the field that decode names, and tells what it takes") {
  const test::TempDir dir;
  save_npy(dir / "photo.npy", Tensor::zeros(DType::u8, {5, 8, 6, 3}));
  PipelineSpec p;
  p.source = npy(dir / "photo.npy", "photo");
  p.stages = {{"decode", {{"field", "photo"}}, ""}, {"resize", {{"size", 4}, {"device", "gpu"}}, ""}};
  const Pipeline run(p, {.batch = 5, .for_graph = true});
  REQUIRE(run.graph_part().stages.size() == 1);
  CHECK(run.graph_part().stages[0].op == "resize");
  Batch b;
  Pipeline host(p, {.batch = 5, .for_graph = true});
  REQUIRE(host.next(b));
  CHECK(b.at("image").dims() == Dims{5, 8, 6, 3});
  // Not in a step, and with another mode.
  test::expect_error(ErrorCode::no_device,
                     {"resize runs on a GPU only within a training step", "of one size",
                      "leave 'device' out: the host resizes"},
                     [&] { Pipeline(p, {.batch = 5}); });
  p.stages[1].options["mode"] = "shorter";
  test::expect_error(ErrorCode::no_device, {"mode stretch"},
                     [&] { Pipeline(p, {.batch = 5, .for_graph = true}); });
}
