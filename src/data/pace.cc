// SPDX-License-Identifier: Apache-2.0
#include "data/pace.h"

#include <time.h>

#include <algorithm>
#include <cmath>

namespace pelton::data {
namespace {

constexpr int64_t kRemembered = 256;   // samples; older ones count half
constexpr double kFade = 63.0 / 64;    // of the slowest batch, with every batch
constexpr double kNewShare = 1.0 / 8;  // of the newest batch in the consumer's means
constexpr int64_t kSamplesAThread = 2;

void add(double& mean, int64_t value) {
  const double v = static_cast<double>(value);
  mean = mean == 0 ? v : mean + kNewShare * (v - mean);
}

}  // namespace

int64_t thread_cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void Pace::sample_made(int64_t ns, int64_t waited_ns) {
  if (++samples_ >= kRemembered) samples_ /= 2, made_ /= 2, waited_ /= 2;
  made_ += static_cast<double>(ns);
  waited_ += static_cast<double>(std::clamp<int64_t>(waited_ns, 0, ns));
}

void Pace::batch_made(int64_t ns) {
  slowest_ = std::max(slowest_ * kFade, static_cast<double>(ns));
}

void Pace::batch_taken(int64_t ns, int64_t away_ns, int64_t cpu_ns) {
  add(period_, ns);
  add(away_, away_ns);
  add(cpu_, cpu_ns);
}

double Pace::waiting() const {
  return made_ > 0 ? waited_ / made_ : 0;
}

int Pace::readers() const {
  const double computing = std::max(made_ - waited_, 1.0);
  return static_cast<int>(std::min<double>(std::floor(threads_ * waited_ / computing + 0.5), kMostReaders));
}

int64_t Pace::ahead(int64_t batch) const {
  int64_t meanwhile = kLeastAhead;
  if (period_ > 0)
    meanwhile = std::clamp(1 + static_cast<int64_t>(std::min(std::ceil(slowest_ / period_), 1e6)),
                           kLeastAhead, kMostAhead);
  const int64_t samples = kSamplesAThread * (threads_ + readers());
  return std::max(meanwhile, (samples + batch - 1) / batch);
}

bool Pace::consumer_sleeps() const {
  return away_ > period_ / 2 && cpu_ < away_ / 2;
}

}  // namespace pelton::data
