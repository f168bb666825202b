// SPDX-License-Identifier: Apache-2.0
// Trace events: spans on tracks, kept in memory up to a limit and written as Chrome trace JSON, which
// chrome://tracing and Perfetto open. With no active buffer a span costs one atomic load.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace pelton {

// A text argument of an event, shown when it is selected.
using TraceArg = std::pair<std::string, std::string>;

struct TraceEvent {
  std::string name, category;
  int64_t start_ns = 0, duration_ns = 0;  // on the clock of now_ns()
  int track = 0;
  std::vector<TraceArg> args;
};

class TraceBuffer {
 public:
  explicit TraceBuffer(size_t max_events = 1 << 20);

  // Once the buffer is full further events are counted and dropped. Any thread.
  void add(TraceEvent event);
  // The track with this name, made if need be. Threads, streams and ranks are tracks.
  int track(std::string_view name);

  std::vector<TraceEvent> events() const;  // by start time
  int64_t dropped() const;
  std::string chrome_json() const;
  void write(const std::string& path) const;

 private:
  mutable std::mutex mutex_;
  size_t max_events_;
  int64_t dropped_ = 0;
  std::vector<TraceEvent> events_;
  std::vector<std::string> tracks_;
};

// The buffer that spans go to, or nullptr. The caller keeps it alive until it is replaced and every span that
// began before has ended.
void set_active_trace(TraceBuffer* buffer);
TraceBuffer* active_trace();

// The calling thread's own track in `buffer`.
int thread_track(TraceBuffer& buffer);

// From construction to destruction on the calling thread's track. The views must outlive the span.
class TraceSpan {
 public:
  TraceSpan(std::string_view name, std::string_view category)
      : buffer_(active_trace()), name_(name), category_(category), start_ns_(buffer_ ? now_ns() : 0) {}
  ~TraceSpan() {
    if (buffer_) finish();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  void finish();
  TraceBuffer* buffer_;
  std::string_view name_, category_;
  int64_t start_ns_;
};

}  // namespace pelton
