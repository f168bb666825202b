// SPDX-License-Identifier: Apache-2.0
// Runs a model from several threads that share one plan: each has a context of its own.
// usage: run MODEL_OR_PLAN THREADS
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "pelton/pelton.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: run MODEL_OR_PLAN THREADS\n");
    return 2;
  }
  try {
    pelton::Plan plan(argv[1]);
    std::vector<std::vector<float>> data;
    std::vector<std::vector<int64_t>> shapes;
    for (const pelton::ValueInfo& input : plan.inputs()) {
      std::vector<int64_t> shape = input.shape;
      size_t count = 1;
      for (int64_t& d : shape) count *= static_cast<size_t>(d = d < 0 ? 2 : d);
      data.emplace_back(count, 0.5f);
      shapes.push_back(shape);
    }
    pelton_memory memory = plan.memory(shapes);
    std::printf("weights %lld bytes, arena %lld bytes a context\n",
                static_cast<long long>(memory.weights_bytes), static_cast<long long>(memory.arena_bytes));

    std::atomic<int> runs{0};
    std::vector<double> sums(static_cast<size_t>(std::atoi(argv[2])), 0);
    std::vector<std::thread> threads;
    for (double& sum : sums)
      threads.emplace_back([&] {
        pelton::Context context(plan);
        for (size_t i = 0; i < data.size(); ++i) context.set_input(i, pelton::view(data[i], shapes[i]));
        for (int k = 0; k < 10; ++k, ++runs) context.run();
        pelton::Output out = context.output(0);
        for (int64_t i = 0; i < out.count(); ++i) sum += static_cast<double>(out.data<float>()[i]);
      });
    for (std::thread& t : threads) t.join();
    for (double sum : sums)
      if (sum != sums[0]) return 1;
    std::printf("%d runs, every sum %g\n", runs.load(), sums.empty() ? 0 : sums[0]);
  } catch (const pelton::Failure& e) {
    std::fprintf(stderr, "run: %s: %s\n", e.code().c_str(), e.what());
    return 1;
  }
  return 0;
}
