// SPDX-License-Identifier: Apache-2.0
// What `pelton data` does beyond running a pipeline: looking at samples, checking a whole set, making shards.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/pipeline.h"

namespace pelton::data {

// One HTML page, nothing beside it: `count` samples of an epoch in the pipeline's order as the stages make
// them, with boxes, labels and where each came from. Samples that fail show their error.
std::string contact_sheet(const Pipeline& pipeline, int64_t count, int64_t epoch);

struct VerifyResult {
  int64_t samples = 0;
  std::vector<BadSample> bad;  // by index
  std::vector<std::pair<std::string, int64_t>>
      labels;  // class name or number, and how many; when there are labels
};
// Reads and fully makes every sample once. `progress(1)` is called from any thread.
VerifyResult verify_samples(const Pipeline& pipeline, const std::function<void(int64_t)>& progress);

struct ConvertResult {
  int64_t samples = 0, skipped = 0;
  std::vector<std::string> shards;
};
// Writes the source's samples, as they are before any stage, to tar shards "<prefix>-000000.tar" of at most
// `shard_bytes` each (a sample is never split). In the order of the source; unreadable samples are left out.
ConvertResult convert_to_tar(const Source& source, const std::string& prefix, int64_t shard_bytes,
                             const std::function<void(int64_t)>& progress);

}  // namespace pelton::data
