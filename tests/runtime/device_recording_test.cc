// SPDX-License-Identifier: Apache-2.0
// Runs of a plan on a device that are recorded and played again.
#include <doctest/doctest.h>

#include "runtime/device_plans.h"

using namespace pelton;
using namespace pelton::ir;
using namespace pelton::runtime;
using namespace pelton::test;

TEST_CASE("device: the second run of the same sizes is recorded, later ones are played") {
  auto e = load(kPure);
  Context c = e->context();
  int kernels = fake().kernels, plays = fake().plays;
  auto counts = [&] {
    std::pair<int, int> now{fake().kernels - kernels, fake().plays - plays};
    kernels = fake().kernels;
    plays = fake().plays;
    return now;
  };
  auto run = [&](int64_t n) {
    std::vector<HostValue> in = {ramp({n, 4}), ramp({4})};
    same(c.run(in), interp::run(e->graph(), in).outputs);
  };
  run(8);
  CHECK(counts() == std::pair(3, 0));
  run(8);
  CHECK(counts() == std::pair(3, 1));
  run(8);
  CHECK(counts() == std::pair(0, 1));
  run(2);  // other sizes
  CHECK(counts() == std::pair(3, 0));
  run(8);  // known again
  CHECK(counts() == std::pair(0, 1));
  run(100);  // the arena and the buffers grow, so the addresses change
  CHECK(counts() == std::pair(3, 0));
  run(8);
  CHECK(counts() == std::pair(3, 0));
}

TEST_CASE("device: recordings are limited") {
  ExecutableOptions options;
  options.max_graphs = 1;
  auto e = load(kPure, options);
  Context c = e->context();
  auto run = [&](int64_t n) { c.run({ramp({n, 4}), ramp({4})}); };
  run(8);
  run(8);
  run(4);
  int kernels = fake().kernels;
  run(8);
  CHECK(fake().kernels - kernels == 3);
  options.max_graphs = 0;
  auto never = load(kPure, options);
  Context d = never->context();
  int plays = fake().plays;
  for (int i = 0; i < 4; ++i) d.run({ramp({8, 4}), ramp({4})});
  CHECK(fake().plays == plays);
}
