// SPDX-License-Identifier: Apache-2.0
// Curves and gradients once more on every lower instruction set that this machine has; libraries take theirs
// when they start, so each has its own process. Those beyond AVX-512 change nothing in f32.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/cat.h"
#include "device/target.h"

using namespace pelton;

TEST_CASE("training: every instruction set follows PyTorch's loss curves and gradients") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::pair<const char*, const char*> kSets[] = {
      {"scalar", "training: gradients of*,training: 200 updates of dense*"},  // convolutions take minutes
      {"avx2", "training: gradients of*,training: 200 updates of*"}};
  for (const auto& [isa, cases] : kSets) {
    if (device::isa_from_name(isa) >= device::detect_cpu().isa) continue;  // this process's own cases
    CAPTURE(isa);
    const std::string call = cat("PELTON_CPU_ISA=", isa, " '", self, "' -tc='", cases, "' -m");
    const int status = std::system(call.c_str());
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}
