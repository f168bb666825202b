// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/error.h"

namespace pelton {
namespace {

struct Pool {
  explicit Pool(int count)
      : threads(count),
        // The scheduler starts no more workers than CPUs unless told so; a larger arena would stay half
        // empty.
        allowance(tbb::global_control::max_allowed_parallelism,
                  std::max(static_cast<size_t>(count),
                           tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism))),
        arena(count, 1) {}
  int threads;
  tbb::global_control allowance;
  tbb::task_arena arena;
};

std::mutex mutex;
std::atomic<Pool*> current{nullptr};
int wanted_threads = 0;  // guarded by mutex; 0: from the machine
bool forked = false;     // this process is a child that inherited a used pool

// The workers exist in the parent only. The child drops the old pool without touching it (its locks may be
// held by threads that are not there) and works alone. The mutex is held across the fork, so the child never
// inherits it locked by a thread it does not have.
void before_fork() {
  mutex.lock();
}
void after_fork_in_parent() {
  mutex.unlock();
}
void after_fork_in_child() {
  if (current.exchange(nullptr)) forked = true;
  mutex.unlock();
}

Pool& pool() {
  Pool* p = current.load(std::memory_order_acquire);
  if (p) return *p;
  std::lock_guard lock(mutex);
  p = current.load(std::memory_order_relaxed);
  if (!p) {
    static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    (void)registered;
    p = new Pool(forked ? 1 : wanted_threads ? wanted_threads : cpu_limits().usable());
    current.store(p, std::memory_order_release);
  }
  return *p;
}

}  // namespace

void set_threads(int count) {
  if (count < 0 || count > 1024)
    fail(ErrorCode::usage, cat("the thread count is ", count), "",
         "use 1 to 1024, or 0 for all that may be used");
  std::lock_guard lock(mutex);
  wanted_threads = count;
  delete current.exchange(nullptr);  // the next use starts one of the new size
}

int threads() {
  return pool().threads;
}

void spawn(std::function<void()> f) {
  pool().arena.enqueue(std::move(f));
}

void run_in_pool(FunctionRef<void()> f) {
  pool().arena.execute([&] { f(); });
}

void parallel_for(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> f) {
  PELTON_CHECK(grain > 0, "grain ", grain);
  if (begin >= end) return;
  Pool& p = pool();
  int64_t chunks = (end - begin + grain - 1) / grain;
  auto run_chunk = [&](int64_t i) { f(begin + i * grain, std::min(end, begin + (i + 1) * grain)); };
  if (chunks == 1 || p.threads == 1) {
    for (int64_t i = 0; i < chunks; ++i) run_chunk(i);
    return;
  }
  // A thread takes the chunks of its own share first, the same one in every loop over as many, so that what
  // it wrote is still in its cache when the next loop reads it; then it helps the others.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  constexpr int kShares = 64;
  const auto shares = static_cast<int>(std::min<int64_t>({chunks, p.threads, kShares}));
  Share share[kShares];
  for (int s = 0; s < shares; ++s) {
    share[s].next.store(chunks * s / shares, std::memory_order_relaxed);
    share[s].end = chunks * (s + 1) / shares;
  }
  std::atomic<bool> failed{false};  // the others end at their next chunk
  auto work = [&](int) {
    const int own = std::max(0, tbb::this_task_arena::current_thread_index());
    const auto go_on = [&] { return !failed.load(std::memory_order_relaxed); };
    try {
      for (int k = 0; k < shares && go_on(); ++k) {
        Share& s = share[(own + k) % shares];
        for (int64_t i; go_on() && (i = s.next.fetch_add(1, std::memory_order_relaxed)) < s.end;)
          run_chunk(i);
      }
    } catch (...) {
      failed.store(true, std::memory_order_relaxed);
      throw;
    }
  };
  p.arena.execute([&] {
    tbb::parallel_for(0, static_cast<int>(std::min<int64_t>(chunks, p.threads)), work,
                      tbb::simple_partitioner());
  });
}

}  // namespace pelton
