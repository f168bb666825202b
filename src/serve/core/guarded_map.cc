// SPDX-License-Identifier: Apache-2.0
#include "serve/core/guarded_map.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace pelton::serve {
namespace {

// What the signal handler may touch: atomics and bare system calls.
struct Slot {
  std::atomic<uintptr_t> begin{0}, end{0};  // 0: free
  std::atomic<bool> taken{false}, damaged{false};
};
std::array<Slot, 1024> slots;
size_t page_size = 4096;
struct sigaction previous {};

const Slot* slot_of(const void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  for (const Slot& s : slots) {
    const uintptr_t begin = s.begin.load(std::memory_order_acquire);
    if (begin != 0 && at >= begin && at < s.end.load(std::memory_order_acquire)) return &s;
  }
  return nullptr;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Slot& s : slots) {
    const uintptr_t begin = s.begin.load(std::memory_order_acquire);
    if (begin == 0 || at < begin || at >= s.end.load(std::memory_order_acquire)) continue;
    // A page of zeros takes the place of the missing one, and the read goes on.
    void* page = reinterpret_cast<void*>(at & ~(page_size - 1));
    s.damaged.store(true, std::memory_order_release);
    if (::mmap(page, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
        MAP_FAILED)
      return;
  }
  // Not ours: as it was before.
  if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  ::signal(signal, SIG_DFL);  // the fault happens again and ends the process
}

void install_handler() {
  static std::once_flag once;
  std::call_once(once, [] {
    page_size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &previous);
  });
}

}  // namespace

std::shared_ptr<const GuardedMap> GuardedMap::make(int fd, size_t offset, size_t size) {
  install_handler();
  int slot = -1;
  for (size_t i = 0; i < slots.size() && slot < 0; ++i) {
    bool free = false;
    if (slots[i].taken.compare_exchange_strong(free, true)) slot = static_cast<int>(i);
  }
  if (slot < 0) return nullptr;
  std::shared_ptr<GuardedMap> map(new GuardedMap);
  map->slot_ = slot;
  const size_t shift = offset % page_size;
  map->length_ = (shift + size + page_size - 1) / page_size * page_size;
  void* base = ::mmap(nullptr, map->length_, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset - shift));
  if (base == MAP_FAILED) return nullptr;  // the destructor frees the slot
  map->base_ = static_cast<char*>(base);
  map->data_ = map->base_ + shift;
  map->size_ = size;
  Slot& s = slots[static_cast<size_t>(slot)];
  s.damaged = false;
  s.end.store(reinterpret_cast<uintptr_t>(base) + map->length_, std::memory_order_release);
  s.begin.store(reinterpret_cast<uintptr_t>(base), std::memory_order_release);
  return map;
}

GuardedMap::~GuardedMap() {
  Slot& s = slots[static_cast<size_t>(slot_)];
  s.begin.store(0, std::memory_order_release);
  if (base_) ::munmap(base_, length_);
  s.taken = false;
}

bool GuardedMap::covers(const void* p) {
  return slot_of(p) != nullptr;
}
bool GuardedMap::damaged_at(const void* p) {
  const Slot* s = slot_of(p);
  return s && s->damaged.load(std::memory_order_acquire);
}

}  // namespace pelton::serve
