// SPDX-License-Identifier: Apache-2.0
// Puts finished samples of one batch side by side. Workers write into the batch's own buffers as soon as the
// shapes are known; samples of other shapes wait and are padded when the batch is complete.
#pragma once

#include <mutex>

#include "data/batch.h"
#include "data/buffer_pool.h"
#include "data/sample.h"

namespace pelton::data {

// Name, type and dimensions of each field of a sample.
struct FieldPlan {
  std::string name;
  DType dtype;
  Dims dims;
};
using SamplePlan = std::vector<FieldPlan>;
SamplePlan plan_of(const Sample& sample);
int64_t plan_bytes(const SamplePlan& plan);

// Copies the low corner `block` of a dense array of `from_dims` into the low corner of one of `to_dims`. All
// have one rank; `element` is in bytes.
void copy_block(const uint8_t* from, const Dims& from_dims, uint8_t* to, const Dims& to_dims,
                const Dims& block, size_t element);

class BatchBuilder {
 public:
  BatchBuilder(const SamplePlan& plan, int64_t count, std::shared_ptr<BufferPool> buffers);
  // Any thread, once for each slot. Carries out what is pending on the picture.
  void put(int64_t slot, Sample& sample);
  // After all slots are done. `keep` lists the slots to take, in order; `blank` marks those without a sample.
  void build(const std::vector<int64_t>& keep, const std::vector<uint8_t>& blank, Batch& out);

 private:
  struct Loose {
    int64_t slot;
    std::string name;
    Tensor value;
  };
  const SamplePlan& plan_;
  int64_t count_;
  std::shared_ptr<BufferPool> pool_;
  std::vector<std::shared_ptr<uint8_t>> buffers_;  // by plan row, [count, dims]
  std::vector<std::vector<uint8_t>> filled_;       // by plan row and slot
  std::vector<std::vector<std::string>> texts_;    // by plan row; string fields
  std::mutex mutex_;
  std::vector<Loose> loose_;  // values that do not fit the plan
};

}  // namespace pelton::data
