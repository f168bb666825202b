// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "data/audio/audio.h"

namespace pelton::data {
namespace {

constexpr int64_t kHighestRate = 1 << 20, kMostTaps = 1 << 24;
constexpr int kZeroCrossings = 32;
constexpr double kBeta = 8;

double bessel_i0(double x) {
  double sum = 1, term = 1;
  for (int k = 1; k < 50; ++k) {
    term *= (x / 2 / k) * (x / 2 / k);
    sum += term;
  }
  return sum;
}

}  // namespace

Tensor resampled(const Tensor& signal, int64_t from, int64_t to, int64_t max_samples) {
  if (from == to) return signal;
  if (from < 1 || from > kHighestRate)
    fail(ErrorCode::bad_format, cat("the sound says ", from, " samples a second"), "",
         cat("1 .. ", kHighestRate, " can be resampled"));
  const int64_t channels = signal.dims()[0], n = signal.dims()[1], divisor = std::gcd(from, to);
  const int64_t up = to / divisor, down = from / divisor;  // output i sits at input position i * down / up
  const double cut = std::min(1.0, static_cast<double>(up) / static_cast<double>(down));
  const int64_t half = static_cast<int64_t>(std::ceil(kZeroCrossings / cut));
  // One set of taps for each of the `up` phases.
  const int64_t taps = 2 * half, out_n = (n * up + down - 1) / down;
  if (up * taps > kMostTaps)
    fail(ErrorCode::limit, cat("from ", from, " to ", to, " samples a second takes ", up * taps, " taps"), "",
         "choose a rate with more in common");
  if (channels > 0 && out_n > max_samples / channels)
    fail(ErrorCode::limit,
         cat(n, " samples at ", from, " a second become ", out_n, " of ", channels,
             " channels, above the limit of ", max_samples),
         "", "raise max_samples if the file is to be trusted");
  std::vector<float> table(static_cast<size_t>(up * taps));
  for (int64_t phase = 0; phase < up; ++phase) {
    const double fraction = static_cast<double>(phase) / static_cast<double>(up);
    double sum = 0;
    std::vector<double> w(static_cast<size_t>(taps));
    for (int64_t k = 0; k < taps; ++k) {
      const double x = static_cast<double>(k - half + 1) - fraction, u = x / static_cast<double>(half),
                   t = x * cut * std::numbers::pi;
      const double window = std::abs(u) >= 1 ? 0 : bessel_i0(kBeta * std::sqrt(1 - u * u)) / bessel_i0(kBeta);
      sum += w[static_cast<size_t>(k)] = (t == 0 ? 1 : std::sin(t) / t) * window;
    }
    for (int64_t k = 0; k < taps; ++k)
      table[static_cast<size_t>(phase * taps + k)] = static_cast<float>(w[static_cast<size_t>(k)] / sum);
  }
  Tensor out(DType::f32, {channels, out_n});
  float* dst = out.as_mutable<float>();
  for (int64_t c = 0; c < channels; ++c) {
    const float* src = signal.as<float>() + c * n;
    for (int64_t i = 0; i < out_n; ++i) {
      const int64_t position = i * down, first = position / up - half + 1;
      const float* w = table.data() + position % up * taps;
      const int64_t begin = std::max<int64_t>(0, -first), end = std::min(taps, n - first);
      float sum = 0;
      for (int64_t k = begin; k < end; ++k) sum += w[k] * src[first + k];
      *dst++ = sum;
    }
  }
  return out;
}

}  // namespace pelton::data
