// SPDX-License-Identifier: Apache-2.0
// The peer of ensemble_rate.py: one program that calls three plans back to back, one thread of callers each
// with its own contexts, for some seconds. Prints calls of the whole chain a second.
//
//   back_to_back SECONDS THREADS WIDTH PLAN PLAN PLAN
#include <pelton/pelton.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 7) return 2;
  const double seconds = std::atof(argv[1]);
  const int threads = std::atoi(argv[2]);
  const int64_t width = std::atoll(argv[3]);
  std::vector<pelton::Plan> plans;
  for (int i = 4; i < 7; ++i) plans.emplace_back(std::string(argv[i]));
  std::atomic<long> calls{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  const auto start = std::chrono::steady_clock::now();
  for (int t = 0; t < threads; ++t)
    callers.emplace_back([&] {
      std::vector<pelton::Context> contexts;
      for (auto& p : plans) contexts.emplace_back(p);
      const std::vector<float> given(static_cast<size_t>(width), 0.5f);
      while (!stop) {
        std::vector<pelton::Output> kept;
        const float* values = given.data();
        for (auto& c : contexts) {
          c.set_input(0, pelton::view(values, {1, width}));
          c.run();
          kept.push_back(c.output(0));
          values = kept.back().data<float>();
        }
        ++calls;
      }
    });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  for (auto& t : callers) t.join();
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%.3f\n", static_cast<double>(calls) / took);
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
