// SPDX-License-Identifier: Apache-2.0
// The tensor part as IR against the host pipeline, from the same decoded pixels: equal bits under match, 1e-3
// of a level in the default mode.
#include "data/lower.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "data/evaluation.h"
#include "data/pipeline.h"
#include "interp/interpreter.h"
#include "ir/text.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::data;
using pelton::test::expect_error;

namespace {

PipelineSpec spec_of(const std::string& stages, const std::string& match = "none") {
  return parse_pipeline(
      cat("version = 1\nseed = 5\nmatch = \"", match, "\"\nsource = { kind = \"synthetic\" }\n", stages),
      "p.toml", "");
}

// Smooth waves with noise: resampling has something to blend, flat areas and edges occur.
Tensor picture(int h, int w, int c = 3) {
  Tensor t(DType::u8, {1, h, w, c});
  uint8_t* p = t.as_mutable<uint8_t>();
  uint32_t noise = 1;
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x)
      for (int k = 0; k < c; ++k) {
        noise = noise * 1664525u + 1013904223u;
        const double v = 128 + 90 * std::sin(x * 0.13 + k) * std::cos(y * 0.09) + (noise >> 28) * 4.0;
        *p++ = static_cast<uint8_t>(std::clamp(v, 0.0, 255.0));
      }
  return t;
}

Tensor on_host(const PipelineSpec& spec, const Tensor& pictures) {
  const Dims& d = pictures.dims();
  auto source = from_function(
      1,
      [&](int64_t) {
        Sample s;
        s.set("image", pictures.reshaped({d[1], d[2], d[3]}));
        return s;
      },
      "one");
  Pipeline p(spec, std::move(source), {.batch = 1, .evaluation = true});
  Batch b;
  REQUIRE(p.next(b));
  return b.at("image");
}

Tensor in_ir(const PipelineSpec& spec, const Tensor& pictures) {
  ir::Graph g = lower_pipeline(spec, "x");
  // Text form: the graph is the same after printing and reading.
  const std::string text = ir::print(g);
  CHECK(ir::print(ir::parse_graph(text)) == text);
  return interp::run(g, {pictures}).outputs.at(0).tensor;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.dims() == b.dims());
  REQUIRE(a.dtype() == b.dtype());
  const std::vector<double> x = to_doubles(a), y = to_doubles(b);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::abs(x[i] - y[i]));
  return worst;
}

const char* const kNormalize = "[[stage]]\nop = \"normalize\"\n";
const char* const kLevels = "[[stage]]\nop = \"normalize\"\nmean = 0\nstd = 0.00392156862745098\n";  // 0..255
const char* const kDecode = "[[stage]]\nop = \"decode\"\n";

}  // namespace

TEST_CASE("lowered pipelines equal the host's bits under match") {
  struct Resize {
    const char *match, *options;
  };
  const Resize resizes[] = {{"pillow", "filter = \"linear\""},
                            {"pillow", "filter = \"lanczos\""},
                            {"pillow", "filter = \"nearest\""},
                            {"torchvision", "filter = \"linear\""},
                            {"torchvision", "filter = \"cubic\""},
                            {"torchvision", "filter = \"linear\"\nantialias = false"},
                            {"opencv", "filter = \"linear\"\nantialias = false"},
                            {"opencv", "filter = \"box\""},
                            {"opencv", "filter = \"cubic\"\nantialias = false"}};
  for (const Resize& r : resizes)
    for (auto [h, w] : {std::pair(75, 100), std::pair(131, 64), std::pair(64, 64)}) {
      CAPTURE(r.match);
      CAPTURE(r.options);
      CAPTURE(h);
      const PipelineSpec spec = spec_of(
          cat(kDecode, "[[stage]]\nop = \"resize\"\nsize = 40\nmode = \"shorter\"\n", r.options,
              "\n[[stage]]\nop = \"crop\"\nsize = [32, 36]\n[[stage]]\nop = \"flip\"\nhorizontal = true\n",
              kNormalize),
          r.match);
      const Tensor x = picture(h, w);
      CHECK(largest_difference(on_host(spec, x), in_ir(spec, x)) == 0);
    }
}

TEST_CASE("lowered pipelines stay within 1e-3 of a level in the default mode") {
  const char* const chains[] = {
      "[[stage]]\nop = \"resize\"\nsize = 40\nmode = \"shorter\"\n[[stage]]\nop = \"crop\"\nsize = 32\n",
      "[[stage]]\nop = \"resize\"\nsize = [30, 50]\nfilter = \"cubic\"\n",
      "[[stage]]\nop = \"resize\"\nsize = 200\nmode = \"longer\"\nfilter = \"lanczos\"\n",
      "[[stage]]\nop = \"crop\"\nsize = 50\nx = 0\ny = 1\n[[stage]]\nop = \"resize\"\nsize = 24\nantialias = "
      "false\n",
      "[[stage]]\nop = \"flip\"\nhorizontal = true\nvertical = true\n[[stage]]\nop = \"resize\"\nsize = 33\n",
      "[[stage]]\nop = \"contrast\"\nfactor = 1.4\n[[stage]]\nop = \"resize\"\nsize = 33\n[[stage]]\nop = "
      "\"hue\"\ndegrees = 20\n",
      "[[stage]]\nop = \"grayscale\"\n[[stage]]\nop = \"brightness\"\nfactor = 1.3\n",
      "[[stage]]\nop = \"resize\"\nsize = 33\n[[stage]]\nop = \"pad\"\nborder = [1, 2, 3, 4]\nfill = [9, 99, "
      "250]\n",
      "[[stage]]\nop = \"pad\"\nmultiple = 32\n",
      "[[stage]]\nop = \"crop\"\nsize = 120\nfill = 77\n"};  // larger than the picture
  for (const char* chain : chains) {
    CAPTURE(chain);
    const PipelineSpec spec = spec_of(cat(kDecode, chain, kLevels));
    for (auto [h, w] : {std::pair(75, 100), std::pair(131, 64)}) {
      const Tensor x = picture(h, w);
      CHECK(largest_difference(on_host(spec, x), in_ir(spec, x)) < 1e-3);
    }
  }
}

TEST_CASE("stages that round to 8 bits agree within one level, most of them in all bits") {
  const char* const chains[] = {
      "[[stage]]\nop = \"resize\"\nsize = 40\n[[stage]]\nop = \"posterize\"\nbits = 3\n",
      "[[stage]]\nop = \"solarize\"\nthreshold = 100\n",
      "[[stage]]\nop = \"contrast\"\nfactor = 1.4\n[[stage]]\nop = \"grayscale\"\nchannels = 1\n",
      "[[stage]]\nop = \"resize\"\nsize = 40\n"};
  for (const char* chain : chains) {
    CAPTURE(chain);
    const PipelineSpec spec = spec_of(cat(kDecode, chain));
    const Tensor x = picture(75, 100);
    CHECK(largest_difference(on_host(spec, x), in_ir(spec, x)) == 0);
  }
}

TEST_CASE("half precision, gray pictures, other layouts and several pictures") {
  const PipelineSpec half = spec_of(
      cat(kDecode,
          "[[stage]]\nop = \"resize\"\nsize = 20\n[[stage]]\nop = \"normalize\"\ndtype = \"f16\"\nlayout = "
          "\"hwc\"\n"),
      "pillow");
  const Tensor x = picture(60, 50);
  const Tensor y = in_ir(half, x);
  CHECK(y.dtype() == DType::f16);
  CHECK(y.dims() == Dims{1, 20, 20, 3});
  CHECK(largest_difference(on_host(half, x), y) == 0);

  const PipelineSpec gray = spec_of(
      "[[stage]]\nop = \"decode\"\ncolour = \"gray\"\n[[stage]]\nop = \"resize\"\nsize = 20\n[[stage]]\nop = "
      "\"normalize\"\nmean = 0.5\nstd = 0.5\n",
      "torchvision");
  const Tensor g = picture(60, 50, 1);
  CHECK(largest_difference(on_host(gray, g), in_ir(gray, g)) == 0);

  Tensor two(DType::u8, {2, 60, 50, 3});
  std::memcpy(two.mutable_data(), x.data(), static_cast<size_t>(x.bytes()));
  std::memset(static_cast<uint8_t*>(two.mutable_data()) + x.bytes(), 7, static_cast<size_t>(x.bytes()));
  const Tensor both = in_ir(half, two);
  REQUIRE(both.dims() == Dims{2, 20, 20, 3});
  CHECK(std::memcmp(both.data(), y.data(), static_cast<size_t>(y.bytes())) == 0);
}

TEST_CASE("evaluation form of random stages") {
  const PipelineSpec spec = spec_of(cat(
      kDecode,
      "[[stage]]\nop = \"random_resized_crop\"\nsize = 28\n[[stage]]\nop = \"flip\"\n[[stage]]\nop = "
      "\"rand_augment\"\n[[stage]]\nop = \"contrast\"\nfactor = { uniform = [0.5, 1.5] }\n[[stage]]\nop = "
      "\"brightness\"\nfactor = 1.1\n[[stage]]\nop = \"crop\"\nsize = 24\nx = { uniform = [0, 1] }\n",
      kNormalize));
  const PipelineSpec eval = evaluation_form(spec);
  std::string ops;
  for (const StageSpec& s : eval.stages) append(ops, cat(s.op, " "));
  CHECK(ops == "decode resize crop brightness crop normalize ");
  CHECK(eval.stages[1].options.at("size").numbers[0] == 32);
  CHECK(eval.stages[4].options.at("x").numbers[0] == 0.5);
  const Tensor x = picture(75, 100);
  CHECK(largest_difference(on_host(spec, x), in_ir(spec, x)) < 1e-4);

  const PipelineSpec marked =
      spec_of(cat(kDecode,
                  "[[stage]]\nop = \"rotate\"\nangle = 4\nwhen = \"train\"\n[[stage]]\n"
                  "op = \"resize\"\nsize = 32\nwhen = \"eval\"\n"));
  CHECK(evaluation_form(marked).stages.size() == 2);
  CHECK(training_form(marked).stages[1].op == "rotate");
}

TEST_CASE("what has no compiled form is refused by name, with the fix") {
  auto lower = [](const std::string& stages) { return [stages] { lower_pipeline(spec_of(stages), "x"); }; };
  expect_error(ErrorCode::unsupported_op, {"'rotate'", "line 7", "when = \"train\""},
               lower(cat(kDecode, "[[stage]]\nop = \"rotate\"\nangle = 3\n")));
  expect_error(ErrorCode::usage, {"decodes no pictures"}, lower(""));
  expect_error(ErrorCode::usage, {"flip", "before decode"},
               lower("[[stage]]\nop = \"flip\"\nhorizontal = true\n"));
  expect_error(
      ErrorCode::unsupported_op, {"second resize", "match"},
      lower(cat(kDecode, "[[stage]]\nop = \"resize\"\nsize = 9\n[[stage]]\nop = \"resize\"\nsize = 5\n")));
  expect_error(ErrorCode::usage, {"random_resized_crop to 40x30", "when = \"eval\""},
               lower(cat(kDecode, "[[stage]]\nop = \"random_resized_crop\"\nsize = [30, 40]\n")));
  expect_error(ErrorCode::usage, {"'x' = 0.25", "0, 0.5 or 1"},
               lower(cat(kDecode, "[[stage]]\nop = \"crop\"\nsize = 4\nx = 0.25\n")));
  expect_error(ErrorCode::usage, {"'when' = \"test\""},
               lower(cat(kDecode, "[[stage]]\nop = \"flip\"\nwhen = \"test\"\n")));
}
