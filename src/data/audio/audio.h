// SPDX-License-Identifier: Apache-2.0
// Sound: decoding and the features that speech and audio models take. Signals are f32 [samples] or
// [channels, samples] in -1..1; spectra are f32 [frequencies, frames].
#pragma once

#include <string>
#include <vector>

#include "data/codec/codec.h"

namespace pelton::data {

struct Sound {
  Tensor samples;  // f32 [channels, samples]
  int rate = 0;    // samples a second
};

// WAV, FLAC, Ogg and what else libsndfile reads. bad_format for damaged or cut data, limit above
// `max_samples` (over all channels).
Sound decode_sound(Bytes bytes, int64_t max_samples, const std::string& where);

// f32 [channels, samples] at another rate: windowed sinc (Kaiser, beta 8, 32 zero crossings a side), cut off
// at the lower of the two Nyquist rates. bad_format for a rate that no sound has, limit for more than
// `max_samples` in the result or rates with so little in common that the filter takes 2^24 numbers.
Tensor resampled(const Tensor& signal, int64_t from_rate, int64_t to_rate, int64_t max_samples);

Tensor preemphasized(const Tensor& signal,
                     double coefficient);  // y[i] = x[i] - c * x[i - 1]; y[0] = x[0] * (1 - c)

struct SpectrogramOptions {
  int64_t fft = 512, hop = 160, window = 400;  // in samples; the window is a Hann window, centred in fft
  double power = 2;                            // 1: magnitude, 2: power
  bool centre = true;                          // frames are centred on multiples of hop; ends are mirrored
};
int64_t frame_count(int64_t samples, const SpectrogramOptions& o);
// Where element i of a frame lies in a signal of n samples.
int64_t frame_sample(int64_t frame, int64_t i, int64_t n, const SpectrogramOptions& o);
std::vector<float> hann_window(const SpectrogramOptions& o);  // [fft], zero outside the window
// f32 [samples] -> f32 [fft / 2 + 1, frames]
Tensor spectrogram(const Tensor& signal, const SpectrogramOptions& o);

// f32 [mels, fft / 2 + 1]: triangles spaced evenly on the mel scale, either the HTK formula with peaks of 1,
// or Slaney's scale with areas of 1.
Tensor mel_filters(int64_t mels, int64_t fft, int rate, double low_hz, double high_hz, bool slaney);
Tensor apply_filters(const Tensor& filters, const Tensor& spectrum);  // [m, f] x [f, t]
// 10 * log10(max(x, floor) / reference), cut to top_db below the largest value when top_db > 0.
Tensor decibels(const Tensor& power, double reference, double floor, double top_db);
Tensor cosine_table(int64_t bands, int64_t coefficients);  // f32 [coefficients, bands]
// Orthonormal DCT-II over the first dimension, the first `coefficients` rows kept.
Tensor cosine_transform(const Tensor& spectrum, int64_t coefficients);

// First and one past the last sample of the part whose short-time power (over `frame` samples) is within
// `below_db` of the loudest frame; (0, 0) for silence.
std::pair<int64_t, int64_t> loud_region(const Tensor& signal, int64_t frame, double below_db);

}  // namespace pelton::data
