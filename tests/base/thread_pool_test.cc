// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "base/file.h"
#include "support/expect_error.h"
#include "support/temp_dir.h"

using namespace pelton;

namespace {
int64_t sum_to(int64_t n) {
  std::atomic<int64_t> sum{0};
  parallel_for(0, n, 10, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) sum += i;
  });
  return sum;
}

// Exit status of a child that runs f.
template <class F>
int in_child(F f) {
  pid_t child = fork();
  if (child == 0) _exit(f());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
}  // namespace

// First of all cases that use the pool, by the order of files and lines: the first fork must find it unused.
TEST_CASE("a fork before and after the first use works in the child") {
  CHECK(in_child([] { return sum_to(1000) == 499500 ? 0 : 1; }) == 0);
  CHECK(sum_to(1000) == 499500);
  CHECK(in_child([] { return sum_to(1000) == 499500 && threads() == 1 ? 0 : 1; }) == 0);
}

TEST_CASE("chunks cover the range once and their bounds do not depend on the thread count") {
  std::vector<std::vector<std::pair<int64_t, int64_t>>> seen;
  for (int count : {1, 2, 4}) {
    set_threads(count);
    CHECK(threads() == count);
    std::mutex mutex;
    std::vector<std::pair<int64_t, int64_t>> chunks;
    parallel_for(3, 50, 7, [&](int64_t b, int64_t e) {
      std::lock_guard lock(mutex);
      chunks.emplace_back(b, e);
    });
    std::sort(chunks.begin(), chunks.end());
    seen.push_back(chunks);
  }
  set_threads(0);
  CHECK(seen[0].size() == 7);
  CHECK(seen[0].front().first == 3);
  CHECK(seen[0].back() == std::pair<int64_t, int64_t>{45, 50});
  CHECK(seen[1] == seen[0]);
  CHECK(seen[2] == seen[0]);
}

TEST_CASE("empty ranges do nothing, nested loops and exceptions work") {
  parallel_for(5, 5, 1, [](int64_t, int64_t) { FAIL("called"); });
  std::atomic<int> inner{0};
  parallel_for(0, 8, 1, [&](int64_t, int64_t) { parallel_for(0, 8, 1, [&](int64_t, int64_t) { ++inner; }); });
  CHECK(inner == 64);
  test::expect_error(ErrorCode::numeric, {"from a chunk"}, [] {
    parallel_for(0, 100, 1, [](int64_t b, int64_t) {
      if (b == 50) fail(ErrorCode::numeric, "from a chunk");
    });
  });
  CHECK(sum_to(100) == 4950);
}

TEST_CASE("after an exception the chunks that have not begun are left out") {
  set_threads(4);
  std::atomic<int> ran{0};
  test::expect_error(ErrorCode::usage, {"the tenth"}, [&] {
    parallel_for(0, 1000, 1, [&](int64_t, int64_t) {
      if (++ran == 10) fail(ErrorCode::usage, "the tenth");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  });
  CHECK(ran < 100);
  set_threads(0);
}

TEST_CASE("eight callers never run more chunks at once than the pool has threads plus callers") {
  set_threads(2);
  std::atomic<int> running{0}, most{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 8; ++c)
    callers.emplace_back([&] {
      parallel_for(0, 40, 1, [&](int64_t, int64_t) {
        int now = ++running;
        int seen = most;
        while (now > seen && !most.compare_exchange_weak(seen, now)) {
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        --running;
      });
    });
  for (auto& t : callers) t.join();
  set_threads(0);
  CHECK(most <= 2 + 8);
  CHECK(most >= 1);
}

TEST_CASE("bad thread counts are refused") {
  test::expect_error(ErrorCode::usage, {"thread count is -1", "1 to 1024"}, [] { set_threads(-1); });
  test::expect_error(ErrorCode::usage, {"thread count is 1025"}, [] { set_threads(1025); });
}

TEST_CASE("the affinity mask limits the pool") {
  cpu_set_t old;
  REQUIRE(sched_getaffinity(0, sizeof old, &old) == 0);
  CHECK(cpu_limits().allowed == CPU_COUNT(&old));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &old)) {
      CPU_SET(cpu, &one);
      break;
    }
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  CHECK(cpu_limits().allowed == 1);
  CHECK(cpu_limits().usable() == 1);
  REQUIRE(sched_setaffinity(0, sizeof old, &old) == 0);
}

TEST_CASE("the tightest cgroup quota of the group and its parents counts, in both versions") {
  test::TempDir root;
  auto put = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root / path).parent_path());
    write_file(root / path, text);
  };
  CHECK(cpu_limits(root.path()).quota_cpus == 0);

  put("proc/self/cgroup", "0::/service/job\n");
  put("sys/fs/cgroup/service/job/cpu.max", "max 100000\n");
  CHECK(cpu_limits(root.path()).quota_cpus == 0);
  put("sys/fs/cgroup/service/cpu.max", "150000 100000\n");
  CHECK(cpu_limits(root.path()).quota_cpus == doctest::Approx(1.5));
  put("sys/fs/cgroup/service/job/cpu.max", "50000 100000\n");
  CHECK(cpu_limits(root.path()).quota_cpus == doctest::Approx(0.5));

  put("proc/self/cgroup", "7:memory:/box\n4:cpu,cpuacct:/box\n");
  put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "300000\n");
  put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  CHECK(cpu_limits(root.path()).quota_cpus == doctest::Approx(3));
  put("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  CHECK(cpu_limits(root.path()).quota_cpus == 0);
}

TEST_CASE("usable threads follow the tighter of mask and quota") {
  CHECK(CpuLimits{8, 4, 0}.usable() == 4);
  CHECK(CpuLimits{8, 4, 2.5}.usable() == 2);
  CHECK(CpuLimits{8, 4, 16}.usable() == 4);
  CHECK(CpuLimits{8, 4, 0.3}.usable() == 1);
}
