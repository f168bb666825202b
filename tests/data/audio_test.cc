// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <tuple>

#include "base/file.h"
#include "data/audio/audio.h"
#include "data/ops/stage.h"
#include "support/expect_error.h"
#include "support/skip.h"

using namespace pelton;
using namespace pelton::data;

namespace {

const std::string kAudio = "../shared/real/audio/";

Sound load(const std::string& path) {
  const std::string b = read_file(path);
  return decode_sound({reinterpret_cast<const uint8_t*>(b.data()), b.size()}, 1 << 24, path);
}

Tensor tone(int n, double hz, double rate) {
  std::vector<float> v;
  for (int i = 0; i < n; ++i)
    v.push_back(static_cast<float>(0.5 * std::sin(2 * std::numbers::pi * hz * i / rate)));
  return Tensor::from<float>({n}, v);
}

void check_close(const Tensor& t, const nlohmann::json& expected, double tolerance) {
  REQUIRE(t.count() == static_cast<int64_t>(expected.size()));
  double worst = 0;
  for (int64_t i = 0; i < t.count(); ++i)
    worst = std::max(worst, std::abs(t.get_double(i) - expected[static_cast<size_t>(i)].get<double>()));
  CHECK(worst <= tolerance);
}

}  // namespace

TEST_CASE("every real sound file is read; the three codings of one clip agree") {
  if (!folder_exists(kAudio)) PELTON_SKIP("../shared/real is absent");
  int count = 0;
  for (const auto& f : std::filesystem::recursive_directory_iterator(kAudio))
    if (f.is_regular_file()) {
      const Sound s = load(f.path().string());
      CHECK(s.samples.dims()[0] == 1);
      CHECK((s.rate == 8000 || s.rate == 16000));
      CHECK(s.samples.dims()[1] > 500);
      ++count;
    }
  CHECK(count == 254);
  const Sound wav = load(kAudio + "librispeech/237-134500-0001.wav"),
              flac = load(kAudio + "librispeech/237-134500-0001.flac"),
              ogg = load(kAudio + "librispeech/237-134500-0001.ogg");
  CHECK(wav.samples.same_bytes(flac.samples));
  REQUIRE(ogg.samples.dims() == wav.samples.dims());
  double error = 0, power = 0;
  for (int64_t i = 0; i < wav.samples.count(); ++i) {
    error += std::pow(ogg.samples.get_double(i) - wav.samples.get_double(i), 2);
    power += std::pow(wav.samples.get_double(i), 2);
  }
  CHECK(error < 0.1 * power);  // Vorbis loses some
}

TEST_CASE("sounds that cannot be read are refused with a reason") {
  using test::expect_error;
  auto decode = [](std::string_view b, int64_t limit = 1 << 20) {
    return decode_sound({reinterpret_cast<const uint8_t*>(b.data()), b.size()}, limit, "clip 4");
  };
  expect_error(ErrorCode::bad_format, {"empty", "clip 4"}, [&] { decode(""); });
  expect_error(ErrorCode::bad_format, {"not a sound file", "clip 4"}, [&] { decode("hello, this is text"); });
  const std::string header(
      "RIFF\x2c\0\0\0WAVEfmt "
      "\x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\x08\0\0\0\0\x40\0\xc0\0\x40\0\xc0",
      52);
  CHECK(decode(header).samples.get_double(1) == -0.5);
  expect_error(ErrorCode::limit, {"4 samples of 1 channels, above the limit of 3"},
               [&] { decode(header, 3); });
}

TEST_CASE("features equal their definition in NumPy") {
  const nlohmann::json e = nlohmann::json::parse(read_file("tests/data/expect/audio.json"));
  const Tensor x = tone(1000, 440, 8000);
  check_close(spectrogram(x, {.fft = 256, .hop = 100, .window = 200}), e["power"], 2e-4);
  check_close(spectrogram(x, {.fft = 128, .hop = 64, .window = 128, .power = 1, .centre = false}),
              e["magnitude"], 2e-5);
  check_close(mel_filters(6, 128, 8000, 0, 0, true), e["mel_slaney"], 1e-6);
  check_close(mel_filters(6, 128, 8000, 100, 3000, false), e["mel_htk"], 1e-6);
  check_close(preemphasized(tone(20, 440, 8000), 0.97), e["preemphasis"], 1e-6);
  const Tensor bands = apply_filters(mel_filters(20, 256, 8000, 0, 0, true),
                                     spectrogram(x, {.fft = 256, .hop = 100, .window = 256}));
  check_close(decibels(bands, 1, 1e-10, 80), e["decibels"], 2e-3);
  check_close(cosine_transform(decibels(bands, 1, 1e-10, 80), 8), e["mfcc"], 5e-3);
}

TEST_CASE("resampling keeps a tone and removes what the new rate cannot hold") {
  for (auto [from, to, hz] : {std::tuple{16000, 8000, 1000.0},
                              {8000, 16000, 1000.0},
                              {44100, 16000, 3000.0},
                              {8000, 11025, 440.0}}) {
    const Tensor y = resampled(tone(from, hz, from).reshaped({1, from}), from, to, 1 << 28),
                 expected = tone(to, hz, to);
    REQUIRE(y.dims()[1] == to);
    double worst = 0;
    for (int64_t i = 200; i < to - 200; ++i)
      worst = std::max(worst, std::abs(y.get_double(i) - expected.get_double(i)));
    CHECK(worst < 2e-3);
  }
  const Tensor gone = resampled(tone(16000, 6000, 16000).reshaped({1, 16000}), 16000, 8000, 1 << 28);
  double loudest = 0;
  for (int64_t i = 200; i < 7800; ++i) loudest = std::max(loudest, std::abs(gone.get_double(i)));
  CHECK(loudest < 1e-3);
}

TEST_CASE("the loud part of a sound") {
  Tensor x = Tensor::zeros(DType::f32, {1000});
  for (int64_t i = 300; i < 620; ++i) x.set_double(i, i % 2 ? 0.5 : -0.5);
  CHECK(loud_region(x, 100, 60) == std::pair<int64_t, int64_t>{300, 700});
  CHECK(loud_region(Tensor::zeros(DType::f32, {50}), 10, 60) == std::pair<int64_t, int64_t>{0, 0});
}

TEST_CASE("a speech pipeline: mel spectrum with masked bands") {
  if (!folder_exists(kAudio)) PELTON_SKIP("../shared/real is absent");
  Sample s;
  const std::string b = read_file(kAudio + "speech-commands/yes_1000ms.wav");
  s.set("audio",
        Tensor::from<uint8_t>({static_cast<int64_t>(b.size())}, std::vector<uint8_t>(b.begin(), b.end())));
  auto run = [&](const char* op, const Options& o) {
    const StageKind& k = stage_kind(op, "t");
    k.make(Args(k.schema, o, "t"), Match::none)(s, Draw(1, 0, 0, 0));
  };
  run("decode_audio", {{"rate", 8000}});
  CHECK(s.at("rate").get_int(0) == 8000);
  run("fit_audio", {{"samples", 8000}});
  run("mel_spectrogram", {{"fft", 256}, {"hop", 80}, {"mels", 40}, {"rate", 8000}});
  CHECK(s.at("audio").dims() == Dims{40, 101});
  run("to_decibels", {{"top_db", 80}});
  const Tensor before = s.at("audio").clone();
  run("spec_augment", {{"value", -200}});
  int64_t masked = 0;
  for (int64_t i = 0; i < before.count(); ++i) masked += s.at("audio").get_double(i) == -200;
  CHECK(masked > 0);
  CHECK(masked < before.count());
}
