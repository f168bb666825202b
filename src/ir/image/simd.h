// SPDX-License-Identifier: Apache-2.0
// PELTON_CLONES compiles a loop function for several x86 levels; the loader picks the best one. The results
// are the same on all of them: no fused multiply-add, no reordering of sums. Off under the sanitizers, whose
// run time is not ready when the loader chooses.
#pragma once

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__clang__)
#define PELTON_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PELTON_CLONES
#endif
