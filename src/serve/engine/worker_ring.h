// SPDX-License-Identifier: Apache-2.0
// Memory that the server shares with the process of a model: a ring in which the process leaves its answers.
// An answer there needs no system call, outlives the process, and costs one wake-up for all that were left
// meanwhile.
//
// Layout: a page of 8-byte words, then kRingBytes of frames. Words: 0 bytes written so far (by the process),
// 1 bytes read (by the server), 2 id of the execution that the process began last, 3 not 0 while the server
// sleeps and wants a frame over the socket to wake it. Everything read from here is copied before it is
// looked at: the process may be broken.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "serve/core/model_dir.h"

namespace pelton::serve {

class WorkerRing {
 public:
  static constexpr size_t kPage = 4096, kRingBytes = size_t{1} << 20;

  WorkerRing();  // io error if there is no memory for it
  ~WorkerRing();
  WorkerRing(const WorkerRing&) = delete;
  WorkerRing& operator=(const WorkerRing&) = delete;

  int fd() const { return file_.get(); }
  // Copies the next `size` bytes without taking them and says how many there are in all; 0: none.
  // bad_format if the counts of the process make no sense: fewer bytes than that, or more than the ring has.
  size_t peek(void* to, size_t size) const;
  void read(void* to, size_t size);  // takes bytes that are there
  void skip(size_t size);
  bool empty() const { return word(0).load(std::memory_order_acquire) == read_; }
  // True if the server may sleep until the socket says something; false if a frame has come.
  bool may_sleep();
  void awake() { word(3).store(0, std::memory_order_relaxed); }
  uint64_t begun() const { return word(2).load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t>& word(int i) const { return reinterpret_cast<std::atomic<uint64_t>*>(memory_)[i]; }
  void copy(void* to, size_t size) const;

  Fd file_;
  char* memory_ = nullptr;
  uint64_t read_ = 0;
};

}  // namespace pelton::serve
