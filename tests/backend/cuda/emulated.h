// SPDX-License-Identifier: Apache-2.0
// Runs a kernel's text on the host, a block at a time: each thread is a fiber, a warp's instructions and
// barriers wait for all that take part, one warp runs as far as it can before the next, copies arrive no
// sooner than they are waited for and stay inside of what the test has allowed. Included before the
// kernel's .cuh in place of the device's primitives (own/mma.cuh, own/launch.cuh), whose names it defines.
#pragma once

#include <cuda_runtime_api.h>
#include <ucontext.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#undef __device__
#undef __global__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace pelton::backend::cuda {

struct EmulatedDim {
  int x = 0, y = 0;
};
static EmulatedDim threadIdx, blockIdx;  // as all below: of this file's test alone

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

  // Runs `thread` as every thread of one block.
  void run(int threads, EmulatedDim block, const std::function<void()>& thread) {
    blockIdx = block;
    fibers_.clear();
    block_ = {};
    warps_.assign(static_cast<size_t>(threads / 32), {});
    thread_ = &thread;
    for (int i = 0; i < threads; ++i) {
      auto f = std::make_unique<Fiber>();
      f->stack.resize(kStack);
      getcontext(&f->context);
      f->context.uc_stack.ss_sp = f->stack.data();
      f->context.uc_stack.ss_size = f->stack.size();
      f->context.uc_link = &main_;
      makecontext(&f->context, &Emulation::enter, 0);
      fibers_.push_back(std::move(f));
    }
    // The last warps first.
    for (bool left = true; left;) {
      left = false;
      for (size_t w = warps_.size(); w-- > 0;)
        while (resume_warp(w)) left = true;
    }
  }
  int outside() const { return outside_; }  // copies from memory that was not allowed

  void allow(const void* from, size_t bytes) {
    allowed_.push_back({static_cast<const std::byte*>(from), bytes});
  }

  void block_barrier() {
    fiber().in_block_barrier = true;
    if (block_.arrived + 1 == fibers_.size())
      for (const auto& f : fibers_) f->in_block_barrier = false;
    wait(block_, fibers_.size());
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

  void copy(void* to, const void* from, bool there) {
    Copy c{to, {}};
    const auto* first = static_cast<const std::byte*>(from);
    bool inside = !there;
    for (const auto& [start, bytes] : allowed_) inside |= first >= start && first + 16 <= start + bytes;
    outside_ += !inside;
    if (there && inside) std::memcpy(c.bytes, from, 16);
    fiber().open.push_back(c);
  }
  void commit() {
    fiber().groups.push_back(std::move(fiber().open));
    fiber().open.clear();
  }
  void arrive(size_t left) {
    for (auto& groups = fiber().groups; groups.size() > left; groups.pop_front())
      for (const Copy& c : groups.front()) std::memcpy(c.to, c.bytes, 16);
  }

 private:
  static constexpr size_t kStack = 256 << 10;
  struct Barrier {
    size_t arrived = 0, generation = 0;
  };
  struct Copy {
    void* to;
    std::byte bytes[16];
  };
  struct Fiber {
    ucontext_t context;
    std::vector<std::byte> stack;
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
    bool done = false, in_block_barrier = false;
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
      if (fibers_[i]->done || fibers_[i]->in_block_barrier) continue;
      any = true;
      now_ = i;
      threadIdx = {static_cast<int>(i), 0};
      swapcontext(&main_, &fibers_[i]->context);
    }
    return any;
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
  Barrier block_;
  const std::function<void()>* thread_ = nullptr;
  size_t now_ = 0;
  std::vector<std::pair<const std::byte*, size_t>> allowed_;
  int outside_ = 0;
};

static inline void let_next_start() {}
static inline void inputs_ready() {}
static inline void __syncthreads() {
  Emulation::current().block_barrier();
}
static inline void copy_16(void* to, const void* from, bool there) {
  Emulation::current().copy(to, from, there);
}
static inline void commit_copies() {
  Emulation::current().commit();
}
template <int kLeft>
static inline void wait_copies() {
  Emulation::current().arrive(kLeft);
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

template <class T>
void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Given {
    uint32_t a[4], b[2];
  };
  const auto all = Emulation::current().exchange(Given{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const auto lane = static_cast<size_t>(threadIdx.x % 32);
  auto half = [](uint32_t pair, size_t i) { return bf16_value(static_cast<uint16_t>(pair >> (16 * i))); };
  for (size_t e = 0; e < 4; ++e) {
    const size_t row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    for (size_t k = 0; k < 16; ++k) {
      const float left = half(all[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2], k % 2);
      const float right = half(all[column * 4 + k % 8 / 2].b[k / 8], k % 2);
      sums[e] += left * right;
    }
  }
}

}  // namespace pelton::backend::cuda
