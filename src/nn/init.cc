// SPDX-License-Identifier: Apache-2.0
#include "nn/init.h"

#include <cmath>

#include "base/hash.h"
#include "base/philox.h"
#include "base/thread_pool.h"

namespace pelton::nn {

namespace {

// Initial values draw from a step of their own, which no training step has.
constexpr uint64_t kInitialStep = 0xFFFFFFFF;
// Normal numbers beyond two deviations are 4.6 % of all; the chance that all tries fail is below 1e-20.
constexpr uint64_t kTries = 16;

double bound(double fan) {
  return 1.0 / std::sqrt(std::max(fan, 1.0));
}

double pick(const Fans& f, Fan fan) {
  return fan == Fan::in ? f.in : f.out;
}

double value(const Init& init, const RandomStream& stream, uint64_t i) {
  switch (init.kind) {
    case Init::Kind::constant:
      return init.a;
    case Init::Kind::uniform:
      return init.a + (init.b - init.a) * static_cast<double>(stream.uniform(i));
    case Init::Kind::normal:
      return init.a + init.b * stream.normal(i);
    case Init::Kind::truncated_normal:
      for (uint64_t t = 0; t < kTries; ++t) {
        double z = stream.normal(i * kTries + t);
        if (std::abs(z) <= 2) return init.a + init.b * z;
      }
      return init.a;
  }
  return 0;
}

}  // namespace

Fans fans(const Dims& w) {
  if (w.size() < 2) return {w.empty() ? 1.0 : static_cast<double>(w[0]), 1};
  double field = 1;
  for (size_t i = 2; i < w.size(); ++i) field *= static_cast<double>(w[i]);
  return {static_cast<double>(w[1]) * field, static_cast<double>(w[0]) * field};
}

Init kaiming_uniform(const Dims& w, double a, Fan fan) {
  double limit = std::sqrt(6.0 / (1 + a * a)) * bound(pick(fans(w), fan));
  return Init::uniform(-limit, limit);
}
Init kaiming_normal(const Dims& w, double a, Fan fan) {
  return Init::normal(std::sqrt(2.0 / (1 + a * a)) * bound(pick(fans(w), fan)));
}
Init xavier_uniform(const Dims& w, double gain) {
  Fans f = fans(w);
  double limit = gain * std::sqrt(6.0 / (f.in + f.out));
  return Init::uniform(-limit, limit);
}
Init xavier_normal(const Dims& w, double gain) {
  Fans f = fans(w);
  return Init::normal(gain * std::sqrt(2.0 / (f.in + f.out)));
}
Init by_fan_in(const Dims& w) {
  double limit = bound(fans(w).in);
  return Init::uniform(-limit, limit);
}

Tensor draw(const Init& init, const Dims& dims, DType dtype, uint64_t seed, std::string_view name) {
  if (init.kind == Init::Kind::constant)
    return init.a == 0 ? Tensor::zeros(dtype, dims) : Tensor::full(dtype, dims, init.a);
  RandomStream stream{seed, kInitialStep, checksum(name).low};
  Tensor t(DType::f32, dims);
  float* out = t.as_mutable<float>();
  parallel_for(0, t.count(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      out[i] = static_cast<float>(value(init, stream, static_cast<uint64_t>(i)));
  });
  return dtype == DType::f32 ? t : from_doubles(dtype, dims, to_doubles(t));
}

}  // namespace pelton::nn
