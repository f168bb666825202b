// SPDX-License-Identifier: Apache-2.0
// What follows a contraction, over rows of its result in a buffer: the last axis in memory is the channels.
#pragma once

#include <string>
#include <vector>

#include "backend/cpu/tile/step.h"
#include "backend/group.h"

namespace pelton::backend::cpu {

// Whether an operand of a result of this rank has one value for all, or one for each index of `axis`.
bool lies_along(const Shape& shape, size_t rank, size_t axis);

class RowChain {
 public:
  // Why the steps of the group of `node` from `first` on cannot be taken; `axis`: the channels of the result.
  static std::string refuse(const Group& group, size_t first, const ir::Graph& graph, ir::NodeId node,
                            size_t axis);
  // `column_of` [columns of the buffer]: channel of each, -1 for those that only fill. `rank`: of the result.
  void take(const Group& group, size_t first, const std::vector<int64_t>& column_of, size_t rank, size_t axis,
            device::CpuIsa isa);
  bool empty() const { return steps_.empty(); }

  // Where a buffer [rows, ld] lies in the result: its columns are those from `column` on, its first row is
  // `row`, its first column the channel `channel`, of `channels`. `count` of its columns are channels.
  struct Place {
    int64_t row = 0, column = 0, channel = 0, count = 0, channels = 0;
  };
  void run(const RunArgs& args, float* values, int64_t rows, int64_t ld, const Place& place) const;

 private:
  struct Link {
    StepFunction function = nullptr;
    int input = -1;          // of the node: the second operand, as large as the result,
    bool one = false;        // or one value for all,
    bool a_channel = false;  // or one a channel
    int values = 0;          // or that many of imm are further operands
    float imm[2] = {};
    std::vector<float> by_column;  // or one value a column, repeat_ times all of them
  };
  std::vector<Link> steps_;
  int64_t columns_ = 0, repeat_ = 1;
};

}  // namespace pelton::backend::cpu
