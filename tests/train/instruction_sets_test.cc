// SPDX-License-Identifier: Apache-2.0
// Curves and gradients once more on every lower instruction set that this machine has; libraries take theirs
// when they start, so each has its own process. Those beyond AVX-512 change nothing in f32.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/cat.h"
#include "device/target.h"
#include "support/skip.h"

using namespace pelton;

namespace {

struct Run {
  int status = -1;
  int cases = -1;  // that ran
};
// Calls this program with its output passed on, but for the counts of cases, which are not of this process.
Run run(const std::string& call) {
  Run out;
  FILE* const child = popen(call.c_str(), "r");
  REQUIRE(child != nullptr);
  char line[512];
  while (std::fgets(line, sizeof line, child)) {
    std::sscanf(line, "[doctest] test cases: %d", &out.cases);
    if (!std::string_view(line).starts_with("[doctest]")) std::fputs(line, stdout);
  }
  out.status = pclose(child);
  return out;
}

struct Set {
  const char *isa, *cases;
  int count;  // of the cases, so that one with another name is missed
};

}  // namespace

TEST_CASE("training: every instruction set follows PyTorch's loss curves and gradients") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const Set kSets[] = {
      {"scalar", "training: gradients of*,training: 200 updates of dense*", 2},  // convolutions take minutes
      {"avx2", "training: gradients of*,training: 200 updates of*", 3}};
  if (device::isa_from_name(kSets[0].isa) >= device::detect_cpu().isa)
    PELTON_SKIP("the CPU has no lower instruction set");
  for (const Set& set : kSets) {
    if (device::isa_from_name(set.isa) >= device::detect_cpu().isa) continue;  // this process's own cases
    CAPTURE(set.isa);
    const Run child = run(cat("PELTON_CPU_ISA=", set.isa, " '", self, "' -tc='", set.cases, "' 2>&1"));
    CHECK(WIFEXITED(child.status));
    CHECK(WEXITSTATUS(child.status) == 0);
    CHECK(child.cases == set.count);
  }
}
