// SPDX-License-Identifier: Apache-2.0
// A device with memory of its own, as the runtime sees it: memory, streams of work in order, events,
// recordings of work that are played again. Back ends implement it; no vendor header is seen here. The CPU is
// no such device: its kernels work on host memory when they are called.
//
// Errors of every call: out_of_memory, device_lost, driver; they name the call that failed.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "device/target.h"

namespace pelton::device {

// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  virtual void synchronize() = 0;                           // until the point is reached
  virtual double ms_since(const Event& earlier) const = 0;  // both timed and reached
};

// Work recorded from a stream. Holds addresses, not what lies there.
class Recording {
 public:
  virtual ~Recording() = default;
};

// Work in order; everything is enqueued and returns at once unless it says otherwise. One thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void* native() const = 0;  // RunArgs::stream
  // Host memory must stay as it is until the copy is done; from pageable memory the call may wait.
  virtual void upload(void* to, const void* host, int64_t bytes) = 0;
  virtual void download(void* host, const void* from, int64_t bytes) = 0;
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;  // within the device
  virtual void fill(void* to, uint8_t byte, int64_t bytes) = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(const Event& event) = 0;
  virtual void synchronize() = 0;  // until all work is done; throws what it failed with

  // Between the two, work is recorded and not done. end_recording() after a failure, or abandon_recording(),
  // leaves the stream usable.
  virtual void begin_recording() = 0;
  virtual std::unique_ptr<Recording> end_recording() = 0;
  virtual void abandon_recording() noexcept = 0;
  virtual void play(const Recording& recording) = 0;
};

// Any thread.
class Device {
 public:
  virtual ~Device() = default;
  virtual const Target& target() const = 0;
  // Makes it the device of the calling thread, which any other call here and any kernel needs.
  virtual void activate() const = 0;
  // At least 256-byte aligned, never null for more than 0 bytes. An out_of_memory error names `what`.
  virtual void* allocate(int64_t bytes, std::string_view what) = 0;
  virtual void release(void* memory) noexcept = 0;
  // Host memory that the device copies from and to without the CPU.
  virtual void* allocate_pinned(int64_t bytes, std::string_view what) = 0;
  virtual void release_pinned(void* memory) noexcept = 0;
  virtual int64_t free_bytes() const = 0;
  // The most that this process held at once through this library; of all devices of the kind together.
  virtual int64_t peak_bytes() const = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  // A stream of the caller's, by its native handle; stays the caller's.
  virtual std::unique_ptr<Stream> adopt_stream(void* native) = 0;
  virtual std::unique_ptr<Event> make_event(bool timed) = 0;
};

// Memory of a device, or pinned host memory, freed with its owner.
class Memory {
 public:
  enum class Where : uint8_t { device, pinned };
  Memory() = default;
  Memory(std::shared_ptr<Device> device, int64_t bytes, std::string_view what, Where where = Where::device);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  void* get() const { return at_; }
  std::byte* bytes_at(int64_t offset) const { return static_cast<std::byte*>(at_) + offset; }
  int64_t bytes() const { return bytes_; }

 private:
  void drop() noexcept;
  std::shared_ptr<Device> device_;
  void* at_ = nullptr;
  int64_t bytes_ = 0;
  Where where_ = Where::device;
};

}  // namespace pelton::device
