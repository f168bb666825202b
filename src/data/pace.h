// SPDX-License-Identifier: Apache-2.0
// How many threads and how many batches ahead a run needs, from the rates that it measures:
//
//   threads  the pool's, which the parts of a sample that compute keep busy, and beside them as many readers
//   as
//            waiting for reads takes: waiting / computing of them for each of the pool's
//   ahead    so many batches as the consumer takes while the slowest of late is made, and one more; at least
//            two samples for each thread
//
// No lock of its own.
#pragma once

#include <cstdint>

namespace pelton::data {

int64_t thread_cpu_ns();  // CPU time of the calling thread

class Pace {
 public:
  static constexpr int kMostReaders = 32;  // that wait for one source at a time
  static constexpr int64_t kLeastAhead = 2, kMostAhead = 16;

  explicit Pace(int threads) : threads_(threads) {}

  // A sample took `ns` of a thread, of which it waited `waited_ns` for its reads.
  void sample_made(int64_t ns, int64_t waited_ns);
  // A batch took `ns` from its first sample's begin to its last one's end.
  void batch_made(int64_t ns);
  // The consumer took a batch, `ns` after the one before; in between it was elsewhere for `away_ns`, and had
  // the CPU for `cpu_ns` of them.
  void batch_taken(int64_t ns, int64_t away_ns, int64_t cpu_ns);

  int readers() const;                 // beyond the pool's threads
  int64_t ahead(int64_t batch) const;  // batches of so many samples
  bool consumer_sleeps() const;        // mostly, as one does that waits for a device: its core is free
  double waiting() const;              // share of a sample's thread time, 0 to 1
  int64_t slowest_batch_ns() const { return static_cast<int64_t>(slowest_); }
  int64_t period_ns() const { return static_cast<int64_t>(period_); }  // between two batches that are taken

 private:
  int threads_;
  int64_t samples_ = 0;
  double made_ = 0, waited_ = 0;            // ns, of the samples of late
  double slowest_ = 0;                      // ns; fades
  double period_ = 0, away_ = 0, cpu_ = 0;  // ns, means of late
};

}  // namespace pelton::data
