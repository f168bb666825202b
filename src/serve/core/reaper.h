// SPDX-License-Identifier: Apache-2.0
// The end of models.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "serve/core/executor.h"
#include "serve/core/model.h"

namespace pelton::serve {

// Destroys models in a thread of its own: the last reference may be dropped by one of a model's workers,
// which cannot join itself.
class Reaper {
 public:
  std::shared_ptr<const Model> adopt(std::shared_ptr<Reaper> self, std::unique_ptr<Model> model);
  // Waits until every adopted model is gone.
  void wait();
  void finish() { executor_.finish(); }

 private:
  Executor executor_{1};
  std::mutex mutex_;
  std::condition_variable changed_;
  int live_ = 0;
};

}  // namespace pelton::serve
