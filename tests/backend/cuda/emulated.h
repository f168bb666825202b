// SPDX-License-Identifier: Apache-2.0
// Runs a kernel's text on the host, a block or a cluster of them at a time: each thread is a fiber, a warp's
// instructions and barriers wait for all that take part, one warp runs as far as it can before the next,
// copies arrive no sooner than they are waited for and stay inside of what the test has allowed. Included
// before the kernel's .cuh in place of the device's primitives (own/mma.cuh, own/launch.cuh,
// own/cluster.cuh, own/together.cuh), whose names it defines.
#pragma once

#include <cuda_runtime_api.h>
#include <ucontext.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cuda/own/tagged.h"

#undef __device__
#undef __global__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __device__
#define __global__ static  // the library has a launch of the same name
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

namespace pelton::backend::cuda {

struct EmulatedDim {
  int x = 0, y = 0;
};
inline EmulatedDim threadIdx, blockIdx;  // of all tests: the class below sets them

// Numbers of 16 bits as kernels move them.
struct EmulatedBf16 {
  uint16_t bits = 0;
};
inline float bf16_value(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

class Emulation {
 public:
  static Emulation& current() {
    static Emulation e;
    return e;
  }

  // Runs `thread` as every thread of one block, or of a cluster of `blocks` of them along y, with `shared`
  // bytes each.
  void run(int threads, EmulatedDim block, const std::function<void()>& thread, int blocks = 1,
           size_t shared = 0) {
    first_ = block;
    threads_ = static_cast<size_t>(threads);
    fibers_.clear();
    blocks_.assign(static_cast<size_t>(blocks), {});
    for (Block& b : blocks_) b.shared.assign(shared / sizeof(double) + 2, NAN);
    cluster_ = {};
    warps_.assign(static_cast<size_t>(threads / 32 * blocks), {});
    thread_ = &thread;
    for (int i = 0; i < threads * blocks; ++i) {
      auto f = std::make_unique<Fiber>();
      f->stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
      getcontext(&f->context);
      f->context.uc_stack.ss_sp = f->stack.get();
      f->context.uc_stack.ss_size = kStack;
      f->context.uc_link = &main_;
      makecontext(&f->context, &Emulation::enter, 0);
      fibers_.push_back(std::move(f));
    }
    // The last warp that can go on, again and again: the last block ends as early as it may. Those that look
    // for something go on when nobody else can.
    do {
      for (size_t w = warps_.size(); w-- > 0;)
        if (resume_warp(w)) w = warps_.size();
    } while (wake_lookers());
  }
  int outside() const { return outside_; }  // copies from memory that was not allowed

  void allow(const void* from, size_t bytes) {
    allowed_.push_back({static_cast<const std::byte*>(from), bytes});
  }

  void block_barrier() {
    fiber().at_barrier = true;
    Block& block = blocks_[now_ / threads_];
    if (block.barrier.arrived + 1 == threads_)
      for (size_t i = 0; i < threads_; ++i) fibers_[now_ / threads_ * threads_ + i]->at_barrier = false;
    wait(block.barrier, threads_);
  }
  void named_barrier(int which, int threads) {
    Named& b = blocks_[now_ / threads_].named[static_cast<size_t>(which)];
    const size_t generation = b.generation;
    b.waiting.push_back(now_);
    if (b.waiting.size() == static_cast<size_t>(threads)) {
      for (size_t i : b.waiting) fibers_[i]->at_barrier = false;
      b.waiting.clear();
      ++b.generation;
      return;
    }
    const size_t mine = now_;
    fiber().at_barrier = true;
    while (b.generation == generation) swapcontext(&fibers_[mine]->context, &main_);
  }
  int rank() const { return static_cast<int>(now_ / threads_); }
  unsigned char* shared(size_t block) {
    return reinterpret_cast<unsigned char*>(blocks_[block].shared.data());
  }
  void look_again() {
    const size_t mine = now_;
    fibers_[mine]->looks = fibers_[mine]->at_barrier = true;
    while (fibers_[mine]->looks) swapcontext(&fibers_[mine]->context, &main_);
  }
  int stuck() const { return stuck_; }  // runs that ended with threads that look for what never comes
  void cluster_arrive() {
    fiber().arrived_at = cluster_.generation;
    if (++cluster_.arrived < fibers_.size()) return;
    cluster_.arrived = 0;
    ++cluster_.generation;
    for (const auto& f : fibers_)
      if (f->waits_for_cluster) f->waits_for_cluster = f->at_barrier = false;
  }
  void cluster_wait() {
    const size_t mine = now_;
    while (cluster_.generation == fibers_[mine]->arrived_at) {
      fibers_[mine]->waits_for_cluster = fibers_[mine]->at_barrier = true;
      swapcontext(&fibers_[mine]->context, &main_);
    }
  }
  // Blocks whose threads have all ended: their shared memory is gone.
  bool over(size_t block) const {
    for (size_t i = 0; i < threads_; ++i)
      if (!fibers_[block * threads_ + i]->done) return false;
    return true;
  }
  // What each lane of the warp gives, in order, once all have given it.
  template <class Given>
  std::array<Given, 32> exchange(const Given& given) {
    static_assert(sizeof(Given) <= sizeof(Warp::Slot));
    Warp& w = warps_[now_ / 32];
    std::memcpy(w.given[now_ % 32].bytes, &given, sizeof given);
    wait(w.barrier, 32);
    std::array<Given, 32> all;
    for (size_t i = 0; i < 32; ++i) std::memcpy(&all[i], w.given[i].bytes, sizeof given);
    wait(w.barrier, 32);
    return all;
  }

  void copy(void* to, const void* from, bool there, size_t size = 16) {
    Copy c{to, size, {}};
    const auto* first = static_cast<const std::byte*>(from);
    bool inside = !there;
    for (const auto& [start, bytes] : allowed_) inside |= first >= start && first + size <= start + bytes;
    outside_ += !inside;
    if (there && inside) std::memcpy(c.bytes, from, size);
    fiber().open.push_back(c);
  }
  void commit() {
    fiber().groups.push_back(std::move(fiber().open));
    fiber().open.clear();
  }
  void arrive(size_t left) {
    for (auto& groups = fiber().groups; groups.size() > left; groups.pop_front())
      for (const Copy& c : groups.front()) std::memcpy(c.to, c.bytes, c.size);
  }

 private:
  static constexpr size_t kStack = 256 << 10;
  struct Barrier {
    size_t arrived = 0, generation = 0;
  };
  struct Copy {
    void* to;
    size_t size;
    std::byte bytes[16];
  };
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack;
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
    bool done = false, at_barrier = false, waits_for_cluster = false, looks = false;
    size_t arrived_at = 0;
  };
  struct Named {
    std::vector<size_t> waiting;
    size_t generation = 0;
  };
  struct Block {
    Barrier barrier;
    std::array<Named, 16> named;
    std::vector<double> shared;
  };
  struct Warp {
    struct Slot {
      alignas(16) std::byte bytes[64];
    };
    Barrier barrier;
    Slot given[32];
  };

  Fiber& fiber() { return *fibers_[now_]; }
  // Each of the warp's threads to its next wait; whether any could go on.
  bool resume_warp(size_t warp) {
    bool any = false;
    for (size_t i = warp * 32; i < warp * 32 + 32; ++i) {
      if (fibers_[i]->done || fibers_[i]->at_barrier) continue;
      any = true;
      now_ = i;
      threadIdx = {static_cast<int>(i % threads_), 0};
      blockIdx = {first_.x, first_.y + static_cast<int>(i / threads_)};
      swapcontext(&main_, &fibers_[i]->context);
    }
    return any;
  }
  // Whether any did and something has happened since the last time.
  bool wake_lookers() {
    size_t looking = 0, over = 0;
    for (const auto& f : fibers_) {
      looking += f->looks;
      over += f->done;
    }
    if (looking == 0) return false;
    const std::pair now{looking, over};
    rounds_ = now == last_ ? rounds_ + 1 : 0;
    last_ = now;
    if (rounds_ > 1000) {
      ++stuck_;
      return false;
    }
    for (const auto& f : fibers_)
      if (f->looks) f->looks = f->at_barrier = false;
    return true;
  }
  static void enter() {
    Emulation& e = current();
    const size_t mine = e.now_;
    (*e.thread_)();
    e.fibers_[mine]->done = true;
  }
  void wait(Barrier& b, size_t count) {
    const size_t generation = b.generation;
    if (++b.arrived == count) {
      b.arrived = 0;
      ++b.generation;
      return;
    }
    const size_t mine = now_;
    while (b.generation == generation) swapcontext(&fibers_[mine]->context, &main_);
  }

  ucontext_t main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  std::vector<Block> blocks_;
  Barrier cluster_;
  EmulatedDim first_;
  size_t threads_ = 1;
  const std::function<void()>* thread_ = nullptr;
  size_t now_ = 0;
  std::vector<std::pair<const std::byte*, size_t>> allowed_;
  int outside_ = 0, stuck_ = 0, rounds_ = 0;
  std::pair<size_t, size_t> last_;  // threads that looked and that were over when lookers were woken
};

static inline void let_next_start() {}
static inline void inputs_ready() {}
static inline void __syncthreads() {
  Emulation::current().block_barrier();
}
static inline void named_barrier(int which, int threads) {
  Emulation::current().named_barrier(which, threads);
}
static inline float __shfl_xor_sync(unsigned, float value, int other) {
  return Emulation::current().exchange(value)[static_cast<size_t>((threadIdx.x % 32) ^ other)];
}
static inline void copy_16(void* to, const void* from, bool there) {
  Emulation::current().copy(to, from, there);
}
static inline void copy_4(void* to, const void* from) {
  Emulation::current().copy(to, from, true, 4);
}
static inline void commit_copies() {
  Emulation::current().commit();
}
template <int kLeft>
static inline void wait_copies() {
  Emulation::current().arrive(kLeft);
}

static inline int cluster_rank() {
  return Emulation::current().rank();
}
static inline void cluster_arrive() {
  Emulation::current().cluster_arrive();
}
static inline void cluster_wait() {
  Emulation::current().cluster_wait();
}
static inline unsigned char* launched_shared() {
  return Emulation::current().shared(static_cast<size_t>(cluster_rank()));
}
template <class T>
const T* in_block(const T* mine, int rank) {
  Emulation& e = Emulation::current();
  const auto to = static_cast<size_t>(rank);
  static const std::array<T, 1024> gone{};
  if (e.over(to)) return gone.data();
  return reinterpret_cast<const T*>(e.shared(to) +
                                    (reinterpret_cast<const unsigned char*>(mine) - launched_shared()));
}

// Blocks of one grid, run as a cluster.
static inline void publish(Tagged* to, float value, uint32_t tag) {
  *to = {value, tag};
}
static inline bool take_tagged(const Tagged* from, uint32_t tag, float& value) {
  value = from->value;
  return from->tag == tag;
}
static inline bool take_tagged_4(const Tagged* from, uint32_t tag, float (&values)[4]) {
  bool all = true;
  for (size_t i = 0; i < 4; ++i) all &= take_tagged(from + i, tag, values[i]);
  return all;
}
static inline void look_again() {
  Emulation::current().look_again();
}
static inline float to_tf32(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + (1u << 12)) & ~((1u << 13) - 1));
}
static inline float from_lane(float x, int difference) {
  const auto lane = static_cast<size_t>(threadIdx.x % 32 ^ difference);
  return Emulation::current().exchange(x)[lane];
}

// Lane l gets of each matrix rows l % 4 * 2 and + 1 of column l / 4.
static inline void load_matrices_transposed(uint32_t (&out)[4], const void* row) {
  const auto rows = Emulation::current().exchange(row);
  const auto lane = static_cast<size_t>(threadIdx.x % 32);
  for (size_t j = 0; j < 4; ++j) {
    uint16_t pair[2];
    for (size_t i = 0; i < 2; ++i)
      pair[i] = static_cast<const uint16_t*>(rows[j * 8 + lane % 4 * 2 + i])[lane / 4];
    out[j] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
}

// The number that 16 bits of T are: bf16 unless said otherwise.
template <class T>
struct EmulatedValue {
  static float of(uint16_t bits) { return bf16_value(bits); }
};

// A product of 16x8x16 of 16 bits, of 16x8x8 of f32.
template <class T>
void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Given {
    uint32_t a[4], b[2];
  };
  const auto all = Emulation::current().exchange(Given{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const auto lane = static_cast<size_t>(threadIdx.x % 32);
  constexpr size_t kWord = 4 / sizeof(T);
  auto number = [](uint32_t word, size_t i) {
    if constexpr (sizeof(T) == 4)
      return (void)i, std::bit_cast<float>(word);
    else
      return EmulatedValue<T>::of(static_cast<uint16_t>(word >> (16 * i)));
  };
  for (size_t e = 0; e < 4; ++e) {
    const size_t row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    for (size_t k = 0; k < 8 * kWord; ++k) {
      const size_t at = k % (4 * kWord) / kWord, far = k / (4 * kWord);
      const float left = number(all[row % 8 * 4 + at].a[row / 8 + far * 2], k % kWord);
      const float right = number(all[column * 4 + at].b[far], k % kWord);
      sums[e] += left * right;
    }
  }
}

}  // namespace pelton::backend::cuda
