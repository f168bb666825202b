// SPDX-License-Identifier: Apache-2.0
#include "base/trace.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/cat.h"
#include "base/file.h"

namespace pelton {
namespace {

std::atomic<TraceBuffer*> active{nullptr};

// A JSON string; bytes that are not UTF-8 become the replacement character.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The format counts in microseconds; three decimals keep the nanoseconds.
std::string microseconds(int64_t ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%lld.%03d", static_cast<long long>(ns / 1000),
                static_cast<int>(ns % 1000));
  return text;
}

}  // namespace

TraceBuffer::TraceBuffer(size_t max_events) : max_events_(max_events) {}

void TraceBuffer::add(TraceEvent event) {
  std::lock_guard lock(mutex_);
  if (events_.size() < max_events_)
    events_.push_back(std::move(event));
  else
    ++dropped_;
}

int TraceBuffer::track(std::string_view name) {
  std::lock_guard lock(mutex_);
  auto at = std::find(tracks_.begin(), tracks_.end(), name);
  if (at == tracks_.end()) at = tracks_.emplace(at, name);
  return static_cast<int>(at - tracks_.begin());
}

std::vector<TraceEvent> TraceBuffer::events() const {
  std::vector<TraceEvent> out;
  {
    std::lock_guard lock(mutex_);
    out = events_;
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const TraceEvent& a, const TraceEvent& b) { return a.start_ns < b.start_ns; });
  return out;
}

int64_t TraceBuffer::dropped() const {
  std::lock_guard lock(mutex_);
  return dropped_;
}

std::string TraceBuffer::chrome_json() const {
  std::vector<TraceEvent> sorted = events();
  int64_t origin_ns = sorted.empty() ? 0 : sorted.front().start_ns;
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  const char* separator = "\n";
  {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < tracks_.size(); ++i) {
      append(out, cat(separator, R"({"ph":"M","pid":1,"tid":)", i, R"(,"name":"thread_name","args":{"name":)",
                      quoted(tracks_[i]), "}}"));
      separator = ",\n";
    }
  }
  for (const TraceEvent& e : sorted) {
    append(out, cat(separator, R"({"ph":"X","pid":1,"tid":)", e.track, ",\"name\":", quoted(e.name),
                    ",\"cat\":", quoted(e.category), ",\"ts\":", microseconds(e.start_ns - origin_ns),
                    ",\"dur\":", microseconds(e.duration_ns)));
    if (!e.args.empty()) {
      append(out, ",\"args\":{");
      for (size_t i = 0; i < e.args.size(); ++i)
        append(out, cat(i ? "," : "", quoted(e.args[i].first), ":", quoted(e.args[i].second)));
      append(out, "}");
    }
    append(out, "}");
    separator = ",\n";
  }
  append(out, cat("\n],\"otherData\":{\"dropped_events\":", dropped(), "}}\n"));
  return out;
}

void TraceBuffer::write(const std::string& path) const {
  write_file(path, chrome_json());
}

void set_active_trace(TraceBuffer* buffer) {
  active.store(buffer, std::memory_order_release);
}
TraceBuffer* active_trace() {
  return active.load(std::memory_order_acquire);
}

int thread_track(TraceBuffer& buffer) {
  thread_local const std::string name = cat("thread ", static_cast<int64_t>(::gettid()));
  return buffer.track(name);
}

void TraceSpan::finish() {
  int64_t end_ns = now_ns();
  buffer_->add({std::string(name_),
                std::string(category_),
                start_ns_,
                end_ns - start_ns_,
                thread_track(*buffer_),
                {}});
}

}  // namespace pelton
