// SPDX-License-Identifier: Apache-2.0
#include "serve/core/executor.h"

#include <system_error>

namespace pelton::serve {

void Executor::post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    bool has_thread = !threads_.empty();
    if (!stopping_ && idle_ <= static_cast<int>(tasks_.size()) &&
        static_cast<int>(threads_.size()) < limit_) {
      try {
        threads_.emplace_back([this] { work(); });
        has_thread = true;
      } catch (const std::system_error&) {  // an existing thread will come to it, else the caller runs it
      }
    }
    if (!stopping_ && has_thread) {
      tasks_.push_back(std::move(task));
      task = nullptr;
    }
  }
  if (task)
    task();
  else
    wake_.notify_one();
}

bool Executor::try_post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (tasks_.size() >= bound_) return false;
  }
  post(std::move(task));
  return true;
}

void Executor::finish() {
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  wake_.notify_all();
  for (std::thread& t : threads) t.join();
}

void Executor::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (tasks_.empty()) {
      if (stopping_) return;
      ++idle_;
      wake_.wait(lock);
      --idle_;
    }
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // destroy captures outside the lock
    lock.lock();
  }
}

}  // namespace pelton::serve
