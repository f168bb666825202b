// SPDX-License-Identifier: Apache-2.0
// How far two cores are from each other's caches: the time of a line that goes there and back, and the rate
// at which one reads what the other wrote, and writes what the other read. The host of a virtual machine may
// move its cores apart and together again within minutes, and figures of two threads change with it.
//
//   core_distance [core core]      one JSON line; default: cores 0 and 1
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace {

constexpr int kTurns = 100000, kPasses = 200;
constexpr size_t kWords = (size_t{512} << 10) / 8;  // less than a second-level cache

struct Shared {
  alignas(64) std::atomic<int64_t> turn{0};
  alignas(64) std::vector<uint64_t> words = std::vector<uint64_t>(kWords);
  std::atomic<uint64_t> sum{0};
  double line_s = 0, write_s = 0, read_s = 0;
};

void run(Shared& s, int64_t me, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
  const auto wait = [&](int64_t turn) {
    while (s.turn.load(std::memory_order_acquire) != turn) {
    }
  };
  wait(me);  // both are here
  s.turn.store(me + 1, std::memory_order_release);
  const int64_t base = 2;
  pelton::Stopwatch watch;
  for (int64_t i = 0; i < kTurns; ++i) {
    wait(base + 2 * i + me);
    s.turn.store(base + 2 * i + me + 1, std::memory_order_release);
  }
  if (me == 0) s.line_s = watch.seconds() / kTurns;
  for (int64_t i = 0; i < kPasses; ++i) {
    wait(base + 2 * (kTurns + i) + me);
    pelton::Stopwatch pass;
    if (me == 0) {
      for (uint64_t& word : s.words) word = static_cast<uint64_t>(i);
      s.write_s += pass.seconds();
    } else {
      uint64_t sum = 0;
      for (uint64_t word : s.words) sum += word;
      s.sum += sum;
      s.read_s += pass.seconds();
    }
    s.turn.store(base + 2 * (kTurns + i) + me + 1, std::memory_order_release);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Shared s;
  const int a = argc > 2 ? std::atoi(argv[1]) : 0, b = argc > 2 ? std::atoi(argv[2]) : 1;
  std::thread other([&] { run(s, 1, b); });
  run(s, 0, a);
  other.join();
  const double gb = 8e-9 * kWords * kPasses;
  std::printf(
      "{\"line_there_and_back_ns\": %.0f, \"read_what_the_other_wrote_gb_s\": %.1f, "
      "\"write_what_the_other_read_gb_s\": %.1f}\n",
      1e9 * s.line_s, gb / s.read_s, gb / s.write_s);
  return s.sum == 0;
}
