// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "data/audio/audio.h"

namespace pelton::data {
namespace {

// In-place radix-2 transform of a power-of-two length; twiddles[k] = exp(-2 pi i k / n).
void fft(std::complex<float>* x, size_t n, const std::vector<std::complex<float>>& twiddles) {
  for (size_t i = 1, j = 0; i < n; ++i) {
    size_t bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(x[i], x[j]);
  }
  for (size_t length = 2; length <= n; length <<= 1)
    for (size_t i = 0; i < n; i += length)
      for (size_t k = 0; k < length / 2; ++k) {
        const std::complex<float> u = x[i + k], w = twiddles[k * (n / length)], b = x[i + k + length / 2];
        const std::complex<float> v(b.real() * w.real() - b.imag() * w.imag(),
                                    b.real() * w.imag() + b.imag() * w.real());
        x[i + k] = u + v;
        x[i + k + length / 2] = u - v;
      }
}

// Position i of a signal of n samples continued by mirroring without repeating its ends.
int64_t mirrored(int64_t i, int64_t n) {
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1);
  i = ((i % period) + period) % period;
  return i < n ? i : period - i;
}

double to_mel(double hz, bool slaney) {
  if (!slaney) return 2595 * std::log10(1 + hz / 700);
  return hz < 1000 ? hz * 3 / 200 : 15 + std::log(hz / 1000) * 27 / std::log(6.4);
}
double from_mel(double mel, bool slaney) {
  if (!slaney) return 700 * (std::pow(10, mel / 2595) - 1);
  return mel < 15 ? mel * 200 / 3 : 1000 * std::exp((mel - 15) * std::log(6.4) / 27);
}

}  // namespace

Tensor preemphasized(const Tensor& signal, double coefficient) {
  Tensor out = signal.clone();
  const int64_t n = signal.dims().back();
  const float c = static_cast<float>(coefficient);
  const float* src = signal.as<float>();
  float* dst = out.as_mutable<float>();
  for (int64_t row = 0; n > 0 && row < signal.count() / n; ++row)
    for (int64_t i = 0; i < n; ++i)
      dst[row * n + i] = src[row * n + i] - c * src[row * n + std::max<int64_t>(0, i - 1)];
  return out;
}

int64_t frame_count(int64_t n, const SpectrogramOptions& o) {
  return o.centre ? n / o.hop + 1 : (n - o.fft) / o.hop + 1;
}

int64_t frame_sample(int64_t frame, int64_t i, int64_t n, const SpectrogramOptions& o) {
  return mirrored(frame * o.hop - (o.centre ? o.fft / 2 : 0) + i, n);
}

std::vector<float> hann_window(const SpectrogramOptions& o) {
  std::vector<float> window(static_cast<size_t>(o.fft), 0.f);
  for (int64_t i = 0; i < o.window; ++i)  // periodic
    window[static_cast<size_t>((o.fft - o.window) / 2 + i)] = static_cast<float>(
        0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(o.window)));
  return window;
}

Tensor spectrogram(const Tensor& signal, const SpectrogramOptions& o) {
  const int64_t n = signal.count();
  if (signal.rank() != 1)
    fail(ErrorCode::bad_shape, cat("the signal is ", signal, ", not f32 [samples]"), "",
         "decode with one channel");
  if (o.fft < 2 || (o.fft & (o.fft - 1)))
    fail(ErrorCode::usage, cat("fft = ", o.fft, " is not a power of two"));
  if (o.window < 1 || o.window > o.fft || o.hop < 1)
    fail(ErrorCode::usage, cat("window = ", o.window, " and hop = ", o.hop, " do not fit fft = ", o.fft));
  if (n == 0 || (!o.centre && n < o.fft))
    fail(ErrorCode::bad_shape, cat("a signal of ", n, " samples is shorter than one frame"));
  const int64_t frames = frame_count(n, o), bins = o.fft / 2 + 1;
  const std::vector<float> window = hann_window(o);
  std::vector<std::complex<float>> twiddles, x(static_cast<size_t>(o.fft));
  for (int64_t k = 0; k < o.fft / 2; ++k) {
    const double t = -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(o.fft);
    twiddles.emplace_back(static_cast<float>(std::cos(t)), static_cast<float>(std::sin(t)));
  }
  Tensor out(DType::f32, {bins, frames});
  float* dst = out.as_mutable<float>();
  const float* src = signal.as<float>();
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t i = 0; i < o.fft; ++i)
      x[static_cast<size_t>(i)] = {src[frame_sample(f, i, n, o)] * window[static_cast<size_t>(i)], 0};
    fft(x.data(), x.size(), twiddles);
    for (int64_t k = 0; k < bins; ++k) {
      const float p = std::norm(x[static_cast<size_t>(k)]);
      dst[k * frames + f] =
          o.power == 2 ? p : static_cast<float>(std::pow(static_cast<double>(p), o.power / 2));
    }
  }
  return out;
}

Tensor mel_filters(int64_t mels, int64_t fft, int rate, double low, double high, bool slaney) {
  if (high <= 0) high = rate / 2.0;
  if (!(low >= 0 && low < high && high <= rate / 2.0))
    fail(ErrorCode::usage, cat("the band ", low, " .. ", high, " Hz does not fit a rate of ", rate));
  std::vector<double> edges;
  const double a = to_mel(low, slaney), b = to_mel(high, slaney);
  for (int64_t i = 0; i < mels + 2; ++i)
    edges.push_back(from_mel(a + (b - a) * static_cast<double>(i) / static_cast<double>(mels + 1), slaney));
  const int64_t bins = fft / 2 + 1;
  Tensor out = Tensor::zeros(DType::f32, {mels, bins});
  float* w = out.as_mutable<float>();
  for (int64_t m = 0; m < mels; ++m) {
    const double l = edges[static_cast<size_t>(m)], c = edges[static_cast<size_t>(m + 1)],
                 r = edges[static_cast<size_t>(m + 2)];
    for (int64_t k = 0; k < bins; ++k) {
      const double hz = static_cast<double>(k) * rate / static_cast<double>(fft);
      const double v = std::max(0.0, std::min((hz - l) / (c - l), (r - hz) / (r - c)));
      w[m * bins + k] = static_cast<float>(slaney ? v * 2 / (r - l) : v);
    }
  }
  return out;
}

Tensor apply_filters(const Tensor& filters, const Tensor& spectrum) {
  const int64_t m = filters.dims()[0], f = filters.dims()[1], t = spectrum.dims()[1];
  if (spectrum.rank() != 2 || spectrum.dims()[0] != f)
    fail(ErrorCode::bad_shape, cat("the spectrum is ", spectrum, ", the filters take ", f, " frequencies"));
  Tensor out = Tensor::zeros(DType::f32, {m, t});
  float* dst = out.as_mutable<float>();
  for (int64_t i = 0; i < m; ++i)
    for (int64_t k = 0; k < f; ++k) {
      const float w = filters.as<float>()[i * f + k];
      if (w == 0) continue;
      const float* row = spectrum.as<float>() + k * t;
      for (int64_t j = 0; j < t; ++j) dst[i * t + j] += w * row[j];
    }
  return out;
}

Tensor decibels(const Tensor& power, double reference, double floor, double top_db) {
  Tensor out(DType::f32, power.dims());
  float* dst = out.as_mutable<float>();
  float top = -1e30f;
  for (int64_t i = 0; i < power.count(); ++i) {
    dst[i] = static_cast<float>(10 * std::log10(std::max<double>(power.as<float>()[i], floor) / reference));
    top = std::max(top, dst[i]);
  }
  if (top_db > 0)
    for (int64_t i = 0; i < power.count(); ++i) dst[i] = std::max(dst[i], top - static_cast<float>(top_db));
  return out;
}

Tensor cosine_table(int64_t n, int64_t coefficients) {
  if (coefficients > n) fail(ErrorCode::usage, cat(coefficients, " coefficients of ", n, " bands"));
  Tensor table(DType::f32, {coefficients, n});
  float* w = table.as_mutable<float>();
  for (int64_t k = 0; k < coefficients; ++k)
    for (int64_t i = 0; i < n; ++i)
      w[k * n + i] = static_cast<float>(std::sqrt((k ? 2.0 : 1.0) / static_cast<double>(n)) *
                                        std::cos(std::numbers::pi * static_cast<double>(k) *
                                                 (static_cast<double>(i) + 0.5) / static_cast<double>(n)));
  return table;
}

Tensor cosine_transform(const Tensor& spectrum, int64_t coefficients) {
  return apply_filters(cosine_table(spectrum.dims()[0], coefficients), spectrum);
}

std::pair<int64_t, int64_t> loud_region(const Tensor& signal, int64_t frame, double below_db) {
  const int64_t n = signal.count();
  const float* x = signal.as<float>();
  std::vector<double> power;
  double largest = 0;
  for (int64_t at = 0; at < n; at += frame) {
    double sum = 0;
    const int64_t end = std::min(n, at + frame);
    for (int64_t i = at; i < end; ++i) sum += static_cast<double>(x[i]) * x[i];
    power.push_back(sum / static_cast<double>(end - at));
    largest = std::max(largest, power.back());
  }
  if (largest == 0) return {0, 0};
  const double need = largest * std::pow(10, -below_db / 10);
  int64_t first = 0, last = static_cast<int64_t>(power.size());
  while (power[static_cast<size_t>(first)] < need) ++first;
  while (power[static_cast<size_t>(last - 1)] < need) --last;
  return {first * frame, std::min(n, last * frame)};
}

}  // namespace pelton::data
