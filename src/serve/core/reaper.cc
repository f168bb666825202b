// SPDX-License-Identifier: Apache-2.0
#include "serve/core/reaper.h"

#include <malloc.h>

namespace pelton::serve {

std::shared_ptr<const Model> Reaper::adopt(std::shared_ptr<Reaper> self, std::unique_ptr<Model> model) {
  {
    std::lock_guard lock(mutex_);
    ++live_;
  }
  return {model.release(), [self](const Model* m) {
            self->executor_.post([self, m] {
              delete m;
              ::malloc_trim(0);  // what the model held goes back to the system, not to a thread's arena
              std::lock_guard lock(self->mutex_);
              --self->live_;
              self->changed_.notify_all();
            });
          }};
}

void Reaper::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return live_ == 0; });
}

}  // namespace pelton::serve
