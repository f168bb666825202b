// SPDX-License-Identifier: Apache-2.0
// A few threads for work that must not hold up requests: loading, unloading, administration.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pelton::serve {

class Executor {
 public:
  // Threads start with the first task. A queue beyond `bound` is refused by try_post.
  explicit Executor(int threads, size_t bound = 1 << 20) : limit_(threads), bound_(bound) {}
  ~Executor() { finish(); }
  void post(std::function<void()> task);  // the task must not throw
  bool try_post(std::function<void()> task);
  // Runs what is queued and joins the threads. Later posts run in the caller's thread.
  void finish();

 private:
  void work();

  const int limit_;
  const size_t bound_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  int idle_ = 0;
  bool stopping_ = false;
};

}  // namespace pelton::serve
