// SPDX-License-Identifier: Apache-2.0
// What a pipeline hands out, and what it says about samples that could not be used.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace pelton::data {

struct BadSample {
  int64_t epoch = 0, step = 0, index = 0;
  std::string origin;  // file, member, offset
  std::string op;      // "read", or the stage that failed
  std::string reason;
};

struct Batch {
  int64_t epoch = 0, step = 0;
  // By name, each [count, ...]. Fields whose size differs from sample to sample are zero-padded to the
  // largest and come with NAME.size i64 [count, rank].
  std::vector<std::pair<std::string, Tensor>> fields;
  std::vector<int64_t> indices;  // [count] of the samples in their source
  std::vector<uint8_t> valid;    // [count] 0: marked as bad, its values are zero
  int64_t padding = 0;           // trailing samples repeated only to keep the steps of all shards equal
  std::vector<BadSample> bad;    // found while making this batch

  int64_t count() const { return static_cast<int64_t>(indices.size()); }
  const Tensor& at(std::string_view name) const;  // bad_name, listing the fields, when absent
  const Tensor* find(std::string_view name) const;
};

}  // namespace pelton::data
