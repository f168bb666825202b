// SPDX-License-Identifier: Apache-2.0
// The batches of a pipeline in the making: a queue of slots, oldest batch first. Tasks of the pool work on
// it, the consumer on the slots of its own batch while it waits for that (never on later ones, whose reads
// may stall), and helpers: threads of the pipeline's own that sleep unless reads, or the consumer, wait.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "data/batch_builder.h"
#include "data/device_pass.h"
#include "data/order.h"
#include "data/pace.h"
#include "data/stages.h"

namespace pelton::data {

// Whether an error is the caller's or the machine's, and no bad sample.
bool is_fatal(ErrorCode code);

// One batch.
struct Work {
  int64_t epoch = 0, step = 0, count = 0;
  std::unique_ptr<BatchBuilder> builder;
  std::vector<Order::Item> items;
  std::vector<uint8_t> blank;  // slots without a sample; each written by its own task only
  // The rest is guarded by Making::mutex.
  int64_t queued = 0;    // slots that nobody works on yet
  int64_t left = 0;      // slots to do, and one for the device's part
  int64_t begun_ns = 0;  // when the first slot was taken
  std::vector<BadSample> bad;
  std::exception_ptr fatal;
};

// What a pipeline and the pool's tasks share; the tasks keep it alive.
struct Making : std::enable_shared_from_this<Making> {
  Making(SampleMaker m, Order o);
  ~Making();
  SampleMaker maker;
  Order order;
  SamplePlan plan;
  DevicePass* pass = nullptr;  // the pipeline's, which outlives all that is being worked on
  bool stays = false;          // the field "image" stays on the device
  std::atomic<int64_t> finish_ns{0};
  std::atomic<bool> closing{false};  // reads that wait for a server end early

  std::mutex mutex;
  std::condition_variable changed;
  Pace pace;
  bool consumer_waits = false;  // and all slots of its batch are taken
  bool consumer_away = true;    // not in Pipeline::next()
  bool stopping = false;
  int64_t samples = 0, replacements = 0, bad = 0;  // replacements: other samples tried for bad ones
  int64_t decoded_on_device = 0, left_to_host = 0;
  std::map<std::string, int64_t> reasons;

  void enqueue(const std::shared_ptr<Work>& work);  // its slots
  void wait_for(Work& work, std::unique_lock<std::mutex>& lock);
  void wake_helpers();  // called with the lock held when something that they go by has changed
  void drain();         // forgets what is queued and waits for what is being worked on
  void reopen();
  void end_helpers();  // after drain(); for good

 private:
  struct Slot {
    std::shared_ptr<Work> work;
    int64_t at = 0;
    bool on_host = false;  // the device's decoder did not take it
  };
  int64_t process(Work& work, int64_t slot, bool on_host);
  bool run_one(std::unique_lock<std::mutex>& lock, const Work* only = nullptr);
  void run_on_device(const std::shared_ptr<Work>& work, DeviceLane lane);
  void done(Work& work);
  void start_runners(size_t at_most);
  int helpers_wanted() const;
  void help();

  std::deque<Slot> queue_;  // to do
  int runners_ = 0, working_ = 0, helping_ = 0;
  bool ended_ = false, no_more_helpers_ = false;
  std::condition_variable helpers_changed_;
  std::vector<std::thread> helpers_;
};

}  // namespace pelton::data
