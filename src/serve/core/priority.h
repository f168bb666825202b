// SPDX-License-Identifier: Apache-2.0
// How much of the processors a model's threads get beside those of other models.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace pelton::serve {

enum class Priority : uint8_t { normal, high, low };

// Sets a thread's, or with the id of a process its first thread's, which the threads that it starts take
// over. 0: the calling thread's. Best effort.
void set_priority(Priority priority, pid_t id = 0);
// Whether this process may give it to a thread: `high` wants a privilege.
bool may_have(Priority priority);

}  // namespace pelton::serve
