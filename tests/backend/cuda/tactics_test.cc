// SPDX-License-Identifier: Apache-2.0
// What becomes of choices that cannot be timed, and which GPUs are none. Needs no GPU.
#include "backend/cuda/tactics.h"

#include <doctest/doctest.h>

#include "backend/cuda/implementations.h"
#include "base/error.h"
#include "device/timing_budget.h"
#include "support/expect_error.h"

using namespace pelton;
using namespace pelton::backend::cuda;
using pelton::test::expect_error;

TEST_CASE("a timing that the memory does not hold takes the first way, and is counted; other errors pass") {
  device::TimingBudget budget(3600);
  CHECK(fastest_in_memory("a key", [] { return size_t{3}; }) == 3);
  CHECK(budget.left_out() == 0);
  auto full = []() -> size_t { fail(ErrorCode::out_of_memory, "no 100 bytes of GPU memory for timing"); };
  CHECK(fastest_in_memory("a key", full) == 0);
  CHECK(budget.left_out() == 1);
  expect_error(ErrorCode::device_lost, {"is gone"}, [] {
    (void)fastest_in_memory("a key", []() -> size_t { fail(ErrorCode::device_lost, "the GPU is gone"); });
  });
}

TEST_CASE("of ways that may be wrong none is taken that could not be judged") {
  device::TimingBudget budget(3600);
  CHECK(sound_in_memory("a key", [] { return std::optional<size_t>(3); }) == 3);
  CHECK(sound_in_memory("a key", [] { return std::optional<size_t>(); }) == std::nullopt);
  CHECK(budget.left_out() == 0);
  auto full = []() -> std::optional<size_t> { fail(ErrorCode::out_of_memory, "no 100 bytes of GPU memory"); };
  CHECK(sound_in_memory("a key", full) == std::nullopt);
  CHECK(budget.left_out() == 1);
}

TEST_CASE("a copy that a model can do without is left out where the memory does not hold it") {
  bool ran = false;
  CHECK(fits_in_memory("a key", [&] { ran = true; }));
  CHECK(ran);
  CHECK(!fits_in_memory("a key", [] { fail(ErrorCode::out_of_memory, "no 100 bytes of GPU memory"); }));
  expect_error(ErrorCode::driver, {"no way"},
               [] { (void)fits_in_memory("a key", [] { fail(ErrorCode::driver, "no way"); }); });
}

TEST_CASE("GPUs older than what kernels are built for are named with what they are") {
  CHECK(why_too_old(1, "NVIDIA A100-SXM4-80GB", 8, 0) ==
        "GPU 1 (NVIDIA A100-SXM4-80GB) has compute capability 8.0, this build needs 9.0");
  CHECK(why_too_old(0, "NVIDIA L4", 8, 9) != "");
  CHECK(why_too_old(0, "NVIDIA H200", 9, 0) == "");
  CHECK(why_too_old(0, "NVIDIA B200", 10, 0) == "");
}
