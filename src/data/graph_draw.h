// SPDX-License-Identifier: Apache-2.0
// data::Draw inside a graph: the draws of a stage for all samples of a batch, the same bits as on the host
// (normal() apart from the last place of its logarithm and cosine). Nothing but the sample's index and the
// epoch comes in, so it does not matter where and in which batch a sample is worked on.
#pragma once

#include <vector>

#include "data/schema.h"
#include "ir/builder.h"

namespace pelton::data {

class GraphDraw {
 public:
  // epoch: i64 []; indices: i64 [N].
  GraphDraw(ir::Builder& b, uint64_t seed, ir::ValueId epoch, ir::ValueId indices);
  // The stage that is drawn for from now on, and all slots that will be asked for.
  void begin(uint32_t stage, std::vector<uint32_t> slots);

  ir::ValueId uniform(uint32_t slot);               // f64 [N] in [0, 1)
  ir::ValueId normal(uint32_t slot);                // f64 [N]
  ir::ValueId below(uint32_t slot, ir::ValueId n);  // i64 [N] in 0 .. n - 1; n: i64, [N] or []
  ir::ValueId value(const Drawn& d);                // f64 [N]; a constant parameter gives f64 []

 private:
  struct Words {
    ir::ValueId w[4];  // u64, each below 2^32
  };
  Words philox(Words counter, ir::ValueId key0, ir::ValueId key1);
  ir::ValueId word(uint32_t slot, int k);    // u64 [N]
  ir::ValueId bits(uint32_t slot, int low);  // u64 [N] of words low + 1, low
  ir::ValueId number(double v);              // u64 []

  ir::Builder& b_;
  uint64_t seed_;
  ir::ValueId epoch_low_, epoch_high_, index_low_, index_high_;
  std::vector<uint32_t> slots_;
  Words words_{};  // [N, slots]
};

}  // namespace pelton::data
