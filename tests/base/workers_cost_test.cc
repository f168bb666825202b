// SPDX-License-Identifier: Apache-2.0
// What the pool costs: nothing while idle, and never more runnable threads than its size plus its callers.
#include <dirent.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"

using namespace pelton;

namespace {

double process_cpu_ms() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

void busy_loop() {
  std::atomic<int64_t> sum{0};
  parallel_for(0, 2000, 1, [&](int64_t b, int64_t) {
    uint64_t x = static_cast<uint64_t>(b);
    for (int i = 0; i < 2000; ++i) x = x * 6364136223846793005 + 1442695040888963407;
    sum += static_cast<int64_t>(x);
  });
}

// Threads of this process that run or wait for a CPU.
int runnable_threads() {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  REQUIRE(folder);
  while (dirent* entry = readdir(folder)) {
    std::string path = std::string("/proc/self/task/") + entry->d_name + "/stat";
    if (FILE* f = std::fopen(path.c_str(), "re")) {
      char text[256] = {};
      [[maybe_unused]] size_t n = std::fread(text, 1, sizeof text - 1, f);
      std::fclose(f);
      // "pid (name) state ...": the name may hold anything, so the last parenthesis counts.
      std::string line(text);
      auto at = line.rfind(") ");
      if (at != line.npos && line.compare(at + 2, 1, "R") == 0) ++count;
    }
  }
  closedir(folder);
  return count;
}

}  // namespace

TEST_CASE("a pool without work goes idle by itself and then costs at most 1 ms of CPU a second") {
  busy_loop();
  // On a busy machine the workers need a while to get the CPU time in which they notice that nothing is left;
  // a pool that spins has no quiet second ever.
  double cost_ms = 0;
  for (int second = 0; second < 8; ++second) {
    double before = process_cpu_ms();
    sleep_ms(1000);
    cost_ms = process_cpu_ms() - before;
    if (cost_ms <= 1.0) break;
  }
  CHECK(cost_ms <= 1.0);
}

TEST_CASE("eight callers of one pool: runnable threads stay within its size plus the callers") {
  const int size = 2, callers = 8;
  set_threads(size);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int c = 0; c < callers; ++c)
    threads.emplace_back([&] {
      while (!stop) busy_loop();
    });
  int most = 0;
  for (int i = 0; i < 200; ++i) {
    most = std::max(most, runnable_threads());
    sleep_ms(2);
  }
  stop = true;
  for (auto& t : threads) t.join();
  set_threads(0);
  // One more for the thread that looks.
  CHECK(most <= size + callers + 1);
  CHECK(most >= 2);
}
