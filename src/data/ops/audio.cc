// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "data/ops/audio_options.h"
#include "data/ops/stage.h"

namespace pelton::data {
namespace {

constexpr const char* kField = "audio";
constexpr int64_t kMostSamples = 1 << 28;

Tensor& signal(Sample& s) {
  Tensor& t = s.at(kField);
  if (t.dtype() != DType::f32)
    fail(ErrorCode::usage, cat("'audio' is ", t, ", not decoded"), "", "put a decode_audio stage first");
  if (t.rank() == 0) fail(ErrorCode::bad_shape, cat("'audio' is ", t, ", not a signal"));
  return t;
}

StageFn make_decode(const Args& a, Match) {
  return [rate = static_cast<int>(a.integer("rate")), mono = a.boolean("mono"),
          limit = a.integer("max_samples"), field = a.text("field")](Sample& s, const Draw&) {
    const Tensor& bytes = s.at(field);
    if (bytes.dtype() != DType::u8 || bytes.rank() != 1)
      fail(ErrorCode::bad_type, cat("'", field, "' is ", bytes, ", not the bytes of a file"));
    Sound sound = decode_sound({bytes.as<uint8_t>(), static_cast<size_t>(bytes.count())}, limit, "");
    if (mono) {
      const int64_t c = sound.samples.dims()[0], n = sound.samples.dims()[1];
      Tensor sum = Tensor::zeros(DType::f32, {1, n});
      float* dst = sum.as_mutable<float>();
      for (int64_t k = 0; k < c; ++k)
        for (int64_t i = 0; i < n; ++i)
          dst[i] += sound.samples.as<float>()[k * n + i] / static_cast<float>(c);
      sound.samples = std::move(sum);
    }
    if (rate > 0) sound.samples = resampled(sound.samples, sound.rate, rate, limit);
    if (mono) sound.samples = sound.samples.reshaped({sound.samples.dims()[1]});
    s.erase(field);
    s.set(kField, std::move(sound.samples));
    s.set("rate", Tensor::scalar<int64_t>(rate > 0 ? rate : sound.rate));
  };
}

// At another rate than the field "rate" says.
StageFn make_resample(const Args& a, Match) {
  return [rate = a.integer("rate")](Sample& s, const Draw&) {
    const Tensor t = signal(s);
    const Tensor& stored = s.at("rate");
    if (!is_int(stored.dtype()) || stored.count() != 1)
      fail(ErrorCode::bad_type, cat("'rate' is ", stored, ", not one whole number"));
    const int64_t from = stored.get_int(0);
    if (t.rank() > 2) fail(ErrorCode::bad_shape, cat("'audio' is ", t, ", not a signal"));
    const Dims flat = t.rank() == 1 ? Dims{1, t.dims()[0]} : t.dims();
    Tensor out = resampled(t.reshaped(flat), from, rate, kMostSamples);
    if (t.rank() == 1) out = out.reshaped({out.dims()[1]});
    s.set(kField, std::move(out));
    s.set("rate", Tensor::scalar<int64_t>(rate));
  };
}

// Exactly `samples` samples from the last dimension: a part, or zeros at the end.
StageFn make_fit(const Args& a, Match) {
  return [n = a.integer("samples"), position = Drawn(a, "position")](Sample& s, const Draw& d) {
    const Tensor t = signal(s);
    Dims dims = t.dims();
    const int64_t have = dims.back(), rows = have ? t.count() / have : 1,
                  from =
                      have > n ? static_cast<int64_t>(static_cast<double>(have - n) * position(d) + 0.5) : 0;
    dims.back() = n;
    Tensor out = Tensor::zeros(DType::f32, dims);
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(t.as<float>() + r * have + from, std::min(n, have), out.as_mutable<float>() + r * n);
    s.set(kField, std::move(out));
  };
}

StageFn make_trim(const Args& a, Match) {
  return [frame = a.integer("frame"), below = a.number("below_db")](Sample& s, const Draw&) {
    const Tensor t = signal(s);
    if (t.rank() != 1) fail(ErrorCode::bad_shape, cat("'audio' is ", t, ", not one channel"));
    const auto [first, last] = loud_region(t, frame, below);
    Tensor out(DType::f32, {last - first});
    std::copy_n(t.as<float>() + first, last - first, out.as_mutable<float>());
    s.set(kField, std::move(out));
  };
}

std::vector<OptionSpec> spectrogram_schema() {
  using T = OptionType;
  return {
      {"fft", T::integer, 512, "samples of a transform, a power of two", 2, 1 << 20},
      {"hop", T::integer, 160, "samples from frame to frame", 1, 1 << 20},
      {"window", T::integer, {}, "samples of the Hann window (default: fft)", 1, 1 << 20, {}, false, true},
      {"centre", T::boolean, true, "frames are centred on multiples of hop, ends mirrored"}};
}

std::vector<OptionSpec> mel_schema() {
  using T = OptionType;
  std::vector<OptionSpec> o = spectrogram_schema();
  o.push_back({"mels", T::integer, 80, "bands", 1, 4096});
  o.push_back({"rate", T::integer, 16000, "samples a second", 1, 1 << 20});
  o.push_back({"low", T::number, 0.0, "Hz", 0});
  o.push_back({"high", T::number, 0.0, "Hz; 0: half the rate", 0});
  o.push_back({"scale", T::text, "slaney", "mel formula", kAny, kNone, {"slaney", "htk"}});
  return o;
}

StageFn make_spec_augment(const Args& a, Match) {
  return [bands = a.integer("bands"), band_width = a.integer("band_width"), times = a.integer("times"),
          time_width = a.integer("time_width"),
          value = static_cast<float>(a.number("value"))](Sample& s, const Draw& d) {
    Tensor& t = signal(s);
    if (t.rank() != 2)
      fail(ErrorCode::bad_shape, cat("'audio' is ", t, ", not a spectrum [frequencies, frames]"));
    const int64_t f = t.dims()[0], n = t.dims()[1];
    float* v = t.as_mutable<float>();
    uint32_t slot = 64;
    for (int64_t i = 0; i < bands; ++i, slot += 2) {
      const int64_t w = std::min(f, d.below(slot, band_width + 1)), at = d.below(slot + 1, f - w + 1);
      std::fill_n(v + at * n, w * n, value);
    }
    for (int64_t i = 0; i < times; ++i, slot += 2) {
      const int64_t w = std::min(n, d.below(slot, time_width + 1)), at = d.below(slot + 1, n - w + 1);
      for (int64_t k = 0; k < f; ++k) std::fill_n(v + k * n + at, w, value);
    }
  };
}

}  // namespace

SpectrogramOptions spectrogram_options(const Args& a) {
  SpectrogramOptions o;
  o.fft = a.integer("fft");
  o.hop = a.integer("hop");
  o.window = a.has("window") ? a.integer("window") : o.fft;
  o.centre = a.boolean("centre");
  if (o.fft & (o.fft - 1))
    fail(ErrorCode::usage, cat("fft = ", o.fft, " is not a power of two"), a.where(),
         "use 256, 512, 1024, ...");
  if (o.window > o.fft)
    fail(ErrorCode::usage, cat("window = ", o.window, " is longer than fft = ", o.fft), a.where());
  return o;
}

Tensor mel_filters_of(const Args& a) {
  try {
    return mel_filters(a.integer("mels"), a.integer("fft"), static_cast<int>(a.integer("rate")),
                       a.number("low"), a.number("high"), a.text("scale") == "slaney");
  } catch (const Error& e) {
    throw e.within(a.where());
  }
}

std::vector<StageKind> audio_stage_kinds() {
  using T = OptionType;
  const std::vector<OptionSpec> mel = mel_schema();
  std::vector<OptionSpec> mfcc = mel;
  mfcc.push_back({"coefficients", T::integer, 13, "kept", 1, 4096});
  return {{{"decode_audio",
            "the field's bytes become f32 samples; adds the field rate",
            {{"field", T::text, "audio", "u8 [bytes] of a sound file"},
             {"rate", T::integer, 0, "resample to this rate; 0: as stored", 0, 1 << 20},
             {"mono", T::boolean, true, "mean of the channels, [samples]; false: [channels, samples]"},
             {"max_samples", T::integer, kMostSamples, "longer sounds are refused", 1}}},
           make_decode},
          {{"resample_audio",
            "another rate, behind stages that work at the first one",
            {{"rate", T::integer, {}, "samples a second", 1, 1 << 20}}},
           make_resample},
          {{"fit_audio",
            "exactly this many samples: a part, or zeros at the end",
            {{"samples", T::integer, {}, "length", 1},
             {"position", T::number, 0.0, "0: from the start, 1: up to the end", 0, 1, {}, true}}},
           make_fit},
          {{"preemphasis", "y[i] = x[i] - c x[i-1]", {{"coefficient", T::number, 0.97, "c", 0, 1}}},
           [](const Args& a, Match) -> StageFn {
             return [c = a.number("coefficient")](Sample& s, const Draw&) {
               s.set(kField, preemphasized(signal(s), c));
             };
           }},
          {{"trim",
            "cuts silence at both ends",
            {{"frame", T::integer, 512, "samples whose power counts together", 1},
             {"below_db", T::number, 60, "quieter than the loudest frame by this is silence", 0}}},
           make_trim},
          {{"spectrogram", "f32 [fft / 2 + 1, frames]",
            [] {
              auto o = spectrogram_schema();
              o.push_back({"power", T::number, 2, "1: magnitude, 2: power", 0.1, 4});
              return o;
            }()},
           [](const Args& a, Match) -> StageFn {
             SpectrogramOptions o = spectrogram_options(a);
             o.power = a.number("power");
             return [o](Sample& s, const Draw&) { s.set(kField, spectrogram(signal(s), o)); };
           }},
          {{"mel_spectrogram", "power spectrum in mel bands, f32 [mels, frames]", mel},
           [](const Args& a, Match) -> StageFn {
             return [o = spectrogram_options(a), filters = mel_filters_of(a)](Sample& s, const Draw&) {
               s.set(kField, apply_filters(filters, spectrogram(signal(s), o)));
             };
           }},
          {{"to_decibels",
            "10 log10 of a power",
            {{"reference", T::number, 1.0, "0 dB", 1e-30},
             {"floor", T::number, 1e-10, "smaller powers count as this", 1e-30},
             {"top_db", T::number, 0.0, "cut below the largest value by this; 0: off", 0}}},
           [](const Args& a, Match) -> StageFn {
             return [r = a.number("reference"), f = a.number("floor"), t = a.number("top_db")](
                        Sample& s, const Draw&) { s.set(kField, decibels(signal(s), r, f, t)); };
           }},
          {{"mfcc", "cosine transform of the mel spectrum in decibels, f32 [coefficients, frames]", mfcc},
           [](const Args& a, Match) -> StageFn {
             return [o = spectrogram_options(a), filters = mel_filters_of(a), n = a.integer("coefficients")](
                        Sample& s, const Draw&) {
               s.set(kField, cosine_transform(decibels(apply_filters(filters, spectrogram(signal(s), o)), 1,
                                                       kMfccFloor, kMfccTop),
                                              n));
             };
           }},
          {{"spec_augment",
            "fills random bands and times of a spectrum",
            {{"bands", T::integer, 2, "bands", 0, 100},
             {"band_width", T::integer, 27, "largest width", 0},
             {"times", T::integer, 2, "stretches of time", 0, 100},
             {"time_width", T::integer, 100, "largest width in frames", 0},
             {"value", T::number, 0.0, "fill"}}},
           make_spec_augment}};
}

}  // namespace pelton::data
