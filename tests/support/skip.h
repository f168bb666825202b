// SPDX-License-Identifier: Apache-2.0
// A case that cannot run here says why and returns. The summary of `make test` counts these by reason, and a
// reason that is not in tests/allowed_skips.txt fails the checks.
#pragma once

#include <cstdio>

#define PELTON_SKIP(reason)             \
  do {                                  \
    std::printf("[skip] %s\n", reason); \
    std::fflush(stdout);                \
    return;                             \
  } while (0)
