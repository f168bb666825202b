// SPDX-License-Identifier: Apache-2.0
// The source and stages of a description, ready to make samples. Immutable; any thread may use it.
#pragma once

#include <atomic>
#include <memory>

#include "data/ops/stage.h"
#include "data/source/source.h"
#include "data/spec.h"

namespace pelton::data {

std::unique_ptr<Source> open_source(const SourceSpec& spec, const std::string& folder, uint64_t seed,
                                    const std::string& where);

Match match_from(const std::string& s);  // of a checked description

class SampleMaker {
 public:
  // Stages are checked and bound to their options here, so that a wrong option never waits for its first
  // sample.
  SampleMaker(PipelineSpec spec, std::shared_ptr<const Source> source);

  // Reads sample `index` and runs all stages on samples. On an error, `op` tells where it came from ("read"
  // or a stage).
  Sample make(int64_t index, int64_t epoch, std::string* op = nullptr) const;

  void finish(Batch& batch) const;  // the stages on batches

  const PipelineSpec& spec() const { return spec_; }
  const Source& source() const { return *source_; }
  std::string fingerprint() const;  // of all that decides what sample i looks like

  // Thread time so far, in nanoseconds: reading, then each stage.
  const std::atomic<int64_t>& read_ns() const { return times_[0]; }
  const std::atomic<int64_t>& stage_ns(size_t stage) const { return times_[stage + 1]; }

 private:
  PipelineSpec spec_;
  std::shared_ptr<const Source> source_;
  std::vector<StageFn> stages_;        // the first of the description's
  std::vector<BatchFn> batch_stages_;  // the rest
  std::unique_ptr<std::atomic<int64_t>[]> times_;
};

}  // namespace pelton::data
