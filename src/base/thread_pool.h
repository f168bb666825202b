// SPDX-License-Identifier: Apache-2.0
// The process's one thread pool. It is started by its first use, sized from what the process may really use,
// and asleep when no work is there. After a fork the child works on its calling thread alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/function_ref.h"

namespace pelton {

// What limits the CPUs of this process.
struct CpuLimits {
  int online = 1;         // CPUs of the machine that are on
  int allowed = 1;        // in the process's affinity mask (which a cpuset narrows)
  double quota_cpus = 0;  // CPU time per wall time from cgroup v1 or v2; 0: no quota
  // Threads that can run all the time: the allowed CPUs, and no more than the quota rounded down, since a
  // thread beyond it makes all of them stop until the quota's next period.
  int usable() const;
};
// `root` stands in front of /proc and /sys, for tests.
CpuLimits cpu_limits(const std::string& root = "");

// Threads that work at the same time, callers included. 0 stands for cpu_limits().usable(). May be called
// between runs, not during one; a count outside 0..1024 is a usage error.
void set_threads(int count);
int threads();

// Calls f(begin, end) for consecutive chunks of `grain` (the last may be shorter) that together cover
// [begin, end). Chunk bounds depend on the arguments only, never on the thread count. The first exception of
// any chunk is thrown to the caller; chunks that have not begun by then are left out. Nesting is allowed.
void parallel_for(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> f);

// Runs f some time on a worker of the pool, never on the calling thread. f must not throw. For work that is
// made ahead of its use; whoever waits for it should be able to do it too, since a pool of one thread has no
// worker until it must.
void spawn(std::function<void()> f);

// Runs f on the calling thread inside the pool, so that libraries built on the same scheduler share its
// threads instead of starting their own.
void run_in_pool(FunctionRef<void()> f);

}  // namespace pelton
