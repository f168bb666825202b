// SPDX-License-Identifier: Apache-2.0
#include "runtime/order.h"

#include <algorithm>

#include "base/error.h"

namespace pelton::runtime {

Order Order::list(int steps) {
  Order order;
  order.steps_.reserve(static_cast<size_t>(steps));
  for (int i = 0; i < steps; ++i) order.steps_.push_back({0, i, {}});
  order.last_.push_back(steps - 1);
  return order;
}

int Order::add(int lane, std::span<const int> waits) {
  auto l = static_cast<size_t>(lane);
  if (l >= last_.size()) last_.resize(l + 1, -1);
  Step step{lane, 0, {}};
  auto learn = [&](int other) {
    PELTON_CHECK(other >= 0 && other < size(), "waits for step ", other, " of ", size());
    const Step& o = steps_[static_cast<size_t>(other)];
    size_t lanes = std::max({step.finished.size(), o.finished.size(), static_cast<size_t>(o.lane) + 1});
    step.finished.resize(lanes, 0);
    for (size_t i = 0; i < o.finished.size(); ++i)
      step.finished[i] = std::max(step.finished[i], o.finished[i]);
    auto ol = static_cast<size_t>(o.lane);
    step.finished[ol] = std::max(step.finished[ol], o.position + 1);
  };
  if (last_[l] >= 0) {
    step.position = steps_[static_cast<size_t>(last_[l])].position + 1;
    learn(last_[l]);
  }
  for (int other : waits) learn(other);
  steps_.push_back(std::move(step));
  return last_[l] = size() - 1;
}

bool Order::before(int a, int b) const {
  const Step &x = steps_[static_cast<size_t>(a)], &y = steps_[static_cast<size_t>(b)];
  if (x.lane == y.lane) return x.position < y.position;
  auto lane = static_cast<size_t>(x.lane);
  return lane < y.finished.size() && x.position < y.finished[lane];
}

}  // namespace pelton::runtime
