// SPDX-License-Identifier: Apache-2.0
// Pipelines of sounds cut between host and graph.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "data/lower.h"
#include "data/pipeline.h"
#include "interp/interpreter.h"
#include "ir/verify.h"

using namespace pelton;
using namespace pelton::data;

namespace {

constexpr int kRate = 8000;

// 16-bit mono: two tones that move with i, of its own length.
Tensor wav(int64_t i) {
  const auto n = static_cast<uint32_t>(3000 + 100 * (i % 3));
  std::vector<uint8_t> out;
  auto text = [&](const char* t) {
    for (int k = 0; k < 4; ++k) out.push_back(static_cast<uint8_t>(t[k]));
  };
  auto number = [&](uint32_t v, int bytes) {
    for (int k = 0; k < bytes; ++k) out.push_back(static_cast<uint8_t>(v >> (8 * k)));
  };
  text("RIFF"), number(36 + 2 * n, 4), text("WAVE"), text("fmt "), number(16, 4), number(1, 2), number(1, 2);
  number(kRate, 4), number(2 * kRate, 4), number(2, 2), number(16, 2), text("data"), number(2 * n, 4);
  for (uint32_t k = 0; k < n; ++k) {
    const double v = 9000 * std::sin(0.02 * (5 + static_cast<double>(i)) * k) + 4000 * std::sin(0.9 * k);
    number(static_cast<uint16_t>(static_cast<int16_t>(v)), 2);
  }
  return Tensor::from<uint8_t>({std::ssize(out)}, out);
}

std::shared_ptr<const Source> sounds() {
  return from_function(
      5,
      [](int64_t i) {
        Sample s;
        s.set("audio", wav(i));
        s.set("label", Tensor::scalar<int64_t>(i));
        return s;
      },
      "tones");
}

PipelineSpec pipeline(std::vector<StageSpec> stages) {
  PipelineSpec p;
  p.seed = 77;
  p.stages = {{"decode_audio", {}, ""}, {"fit_audio", {{"samples", 3000}}, ""}};
  for (StageSpec& s : stages) p.stages.push_back(std::move(s));
  return p;
}

// Largest difference between the whole pipeline and the cut one, over two epochs, and the largest value.
std::pair<double, double> difference(const PipelineSpec& p, size_t in_graph) {
  Pipeline whole(p, sounds(), {.batch = 5}), cut(p, sounds(), {.batch = 5, .for_graph = true});
  CHECK(cut.graph_part().stages.size() == in_graph);
  CHECK(cut.graph_field() == "audio");
  CHECK(cut.state().str() == whole.state().str());
  double worst = 0, largest = 0;
  Batch a, b;
  for (int epoch = 0; epoch < 2; ++epoch) {
    REQUIRE(whole.next(a));
    REQUIRE(cut.next(b));
    const Tensor& given = b.at("audio");
    ir::Graph g("tail");
    const auto in = g.add_input(ir::Type::tensor(DType::f32, to_shape(given.dims())), "audio");
    const auto at = g.add_input(ir::Type::tensor(DType::i64, {}), "epoch");
    const auto indices = g.add_input(ir::Type::tensor(DType::i64, {b.count()}), "indices");
    ir::Builder builder(g);
    g.add_output(lower_training(builder, cut.graph_part(), in, at, indices), "y");
    ir::verify(g, "tail");
    const Tensor y = interp::run(g, {given, Tensor::scalar<int64_t>(b.epoch),
                                     Tensor::from<int64_t>({b.count()}, b.indices)})
                         .outputs.at(0)
                         .tensor;
    const Tensor& x = a.at("audio");
    REQUIRE(y.dims() == x.dims());
    for (int64_t i = 0; i < x.count(); ++i) {
      worst = std::max(worst, std::abs(y.get_double(i) - x.get_double(i)));
      largest = std::max(largest, std::abs(x.get_double(i)));
    }
    CHECK_FALSE(whole.next(a));
    CHECK_FALSE(cut.next(b));
  }
  return {worst, largest};
}

}  // namespace

TEST_CASE("spectra of a graph are the host's to the rounding of f32") {
  for (bool centre : {true, false}) {
    const Options frames = {{"fft", 256}, {"hop", 100}, {"window", 200}, {"centre", centre}};
    for (double power : {1.0, 2.0, 0.7}) {
      Options o = frames;
      o["power"] = power;
      const auto [worst, largest] =
          difference(pipeline({{"preemphasis", {}, ""}, {"spectrogram", o, ""}}), 2);
      CAPTURE(power);
      CHECK(largest > 1);
      // Of a magnitude near zero the rounding is that of the largest one.
      CHECK(worst <= 2e-6 * largest * (power < 1 ? 100 : 1));
    }
    Options mel = frames;
    mel["mels"] = 20, mel["rate"] = kRate;
    const auto [bands, most] = difference(pipeline({{"mel_spectrogram", mel, ""}}), 1);
    CHECK(bands <= 2e-6 * most);
    CHECK(difference(pipeline({{"mel_spectrogram", mel, ""}, {"to_decibels", {{"top_db", 60}}, ""}}), 2)
              .first <= 2e-3);
    mel["coefficients"] = 8;
    CHECK(difference(pipeline({{"mfcc", mel, ""}}), 1).first <= 1e-2);
  }
}

TEST_CASE("masks of a spectrum fall on the same bands and times") {
  PipelineSpec p = pipeline({{"spectrogram", {{"fft", 128}, {"hop", 64}}, ""},
                             {"to_decibels", {{"top_db", 40}}, ""},
                             {"spec_augment", {{"value", -500}, {"time_width", 20}}, ""}});
  const auto [worst, largest] = difference(p, 3);
  CHECK(largest == 500);  // something is masked
  CHECK(worst <= 2e-3);   // and never anything else
}

TEST_CASE("what keeps sounds on the host") {
  auto in_graph = [](const PipelineSpec& p) { return split_training(p).graph.stages.size(); };
  const StageSpec spectrum = {"spectrogram", {}, ""};
  CHECK(in_graph(pipeline({spectrum})) == 1);
  PipelineSpec p = pipeline({spectrum});
  p.stages[0].options["mono"] = false;
  CHECK(in_graph(p) == 0);
  p = pipeline({spectrum});
  p.stages.erase(p.stages.begin() + 1);  // of any length
  CHECK(in_graph(p) == 0);
  CHECK(in_graph(pipeline({{"spectrogram", {{"fft", 8192}}, ""}})) == 0);
  CHECK(in_graph(pipeline({{"spectrogram", {{"device", "cpu"}}, ""}})) == 0);
  CHECK(in_graph(pipeline({{"trim", {}, ""}, spectrum})) == 0);
}
