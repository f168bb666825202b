// SPDX-License-Identifier: Apache-2.0
// Which steps of a schedule are known to have finished when another starts. Steps of one lane (a stream, a
// thread) follow each other; between lanes only what a step waits for counts, and what that waited for.
#pragma once

#include <span>
#include <vector>

namespace pelton::runtime {

class Order {
 public:
  static Order list(int steps);  // one lane
  // Appends a step to `lane` and returns its number. It starts after the lane's last step and after `waits`.
  int add(int lane, std::span<const int> waits = {});
  bool before(int a, int b) const;  // a has finished when b starts
  int size() const { return static_cast<int>(steps_.size()); }

 private:
  struct Step {
    int lane, position;
    // By lane: how many of its steps have finished when this one starts. Its own lane is not looked up here.
    std::vector<int> finished;
  };
  std::vector<Step> steps_;
  std::vector<int> last_;  // by lane: its last step or -1
};

}  // namespace pelton::runtime
