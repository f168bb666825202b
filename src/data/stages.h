// SPDX-License-Identifier: Apache-2.0
// The source and stages of a description, ready to make samples. Immutable; any thread may use it.
#pragma once

#include <atomic>
#include <memory>

#include "data/ops/stage.h"
#include "data/sample_cache.h"
#include "data/source/source.h"
#include "data/spec.h"

namespace pelton::data {

std::unique_ptr<Source> open_source(const SourceSpec& spec, const std::string& folder, uint64_t seed,
                                    const std::string& where);

Match match_from(const std::string& s);  // of a checked description

// Of all that decides what sample i of the training form looks like, and when it comes.
std::string fingerprint(const PipelineSpec& training, const Source& source);

class SampleMaker {
 public:
  // Stages are checked and bound to their options here, so that a wrong option never waits for its first
  // sample. `device`: for a cache on the GPU.
  SampleMaker(PipelineSpec spec, std::shared_ptr<const Source> source,
              std::shared_ptr<device::Device> device = nullptr);

  // Reads sample `index` and runs all stages on samples. On an error, `op` tells where it came from ("read"
  // or a stage). To `waited_ns` is added how long reads waited without the CPU.
  Sample make(int64_t index, int64_t epoch, std::string* op = nullptr, int64_t* waited_ns = nullptr) const {
    return make_until(stages_.size(), index, epoch, op, waited_ns);
  }

  void finish(Batch& batch) const;  // the stages on batches
  bool works_on_batches() const { return !batch_stages_.empty(); }

  const PipelineSpec& spec() const { return spec_; }
  const Source& source() const { return *source_; }

  // Thread time so far, in nanoseconds: reading, then each stage.
  const std::atomic<int64_t>& read_ns() const { return times_[0]; }
  const std::atomic<int64_t>& stage_ns(size_t stage) const { return times_[stage + 1]; }
  int64_t cached_samples() const;
  int64_t cached_bytes() const;
  void drop_caches();  // for good; while nothing is made

 private:
  struct Step {  // one of the three is set
    StageFn alone;
    JoinFn join;
    std::shared_ptr<SampleCache> cache;
    uint32_t number = 0;  // of its draws; a cache has none, so adding one changes no sample
  };
  std::shared_ptr<SampleCache> make_cache(size_t stage, const Args& args,
                                          const std::shared_ptr<device::Device>& device) const;
  Sample make_until(size_t stage, int64_t index, int64_t epoch, std::string* op, int64_t* waited_ns) const;
  Sample read(int64_t index, int64_t* waited_ns) const;
  PipelineSpec spec_;
  std::shared_ptr<const Source> source_;
  std::vector<Step> stages_;           // the first of the description's
  std::vector<BatchFn> batch_stages_;  // the rest
  uint32_t numbered_ = 0;              // stages that may draw, before those on batches
  std::unique_ptr<std::atomic<int64_t>[]> times_;
};

}  // namespace pelton::data
