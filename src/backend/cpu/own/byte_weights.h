// SPDX-License-Identifier: Apache-2.0
// Weights of cpu.int8 in the order of its loops.
#pragma once

#include <memory>
#include <vector>

#include "backend/cpu/own/byte_product.h"

namespace pelton::backend::cpu {

struct ByteWeights {
  // What the sum runs over: in every tap `run` elements that lie one after another, from a pixel on that is
  // so far from the first of the window.
  struct Tap {
    int64_t at[3];
  };
  std::vector<Tap> taps;
  int64_t run = 0, pairs = 0;
  // One output a channel of its own, `columns` of them; else panels of kByteColumns for each group, whose
  // outputs are rounded up to `columns`.
  bool channelwise = false;
  int64_t groups = 1, columns = 0;
  // i16 [groups][panels][taps][pairs][kByteColumns][2], or i32 [taps][columns]; undefined if weights are
  // late.
  std::shared_ptr<const Tensor> packed;
  std::vector<int32_t> bias;        // [groups * columns], or empty
  std::vector<int64_t> channel_of;  // output of each of groups * columns, -1 where there is none

  int64_t tap_count() const { return static_cast<int64_t>(taps.size()); }
  int64_t panel_size() const;  // elements
  const int16_t* panel(int64_t group, int64_t index) const;
  const int32_t* wide() const { return static_cast<const int32_t*>(packed->data()); }
};

ByteWeights pack_byte_weights(const ByteProblem& problem);

}  // namespace pelton::backend::cpu
