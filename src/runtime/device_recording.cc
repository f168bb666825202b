// SPDX-License-Identifier: Apache-2.0
// Parts recorded once and played again: which recording belongs to which addresses, and its lanes.
#include <algorithm>

#include "runtime/device_frame.h"

namespace pelton::runtime {

DeviceFrame::Played& DeviceFrame::played(const Ready& r) {
  std::vector<void*> addresses;
  addresses.reserve(r.moving.size());
  for (uint32_t i : r.moving) addresses.push_back(r.addresses[i]);
  for (auto it = played_.begin(); it != played_.end(); ++it)
    if (it->program == r.program && it->addresses == addresses) {
      played_.splice(played_.begin(), played_, it);
      return played_.front();
    }
  played_.push_front({r.program, std::move(addresses), false, {}});
  if (played_.size() > static_cast<size_t>(region_.options().max_graphs)) {
    stream_->synchronize();  // it may be playing
    played_.pop_back();
  }
  return played_.front();
}

device::Event& DeviceFrame::lane_event() {
  if (lane_events_used_ == lane_events_.size()) lane_events_.push_back(device_->make_event(false));
  return *lane_events_[lane_events_used_++];
}

// A lane begins where the part begins and is waited for at its end; between, the steps wait for each other.
void DeviceFrame::record_part(const Ready& r, const Part& part, const RunOptions& options) {
  const std::vector<Step>& steps = r.program->steps;
  std::vector<device::Event*> done(part.last - part.first, nullptr);  // by step that another lane waits for
  std::vector<bool> wanted(done.size(), false);
  for (uint32_t s = part.first; s < part.last; ++s)
    for (int w : steps[s].waits) wanted[static_cast<size_t>(w) - part.first] = true;
  size_t beside = 0;  // lanes beside the first
  for (uint32_t s = part.first; s < part.last; ++s)
    beside = std::max(beside, static_cast<size_t>(steps[s].lane));
  lane_events_used_ = 0;
  device::Event* const begin = beside > 0 ? &lane_event() : nullptr;
  if (begin) stream_->record(*begin);
  while (lanes_.size() < beside) lanes_.push_back(device_->make_stream());
  std::vector<bool> entered(beside, false);
  for (const Step* step = &steps[part.first]; step != steps.data() + part.last; ++step) {
    const auto lane = static_cast<size_t>(step->lane);
    device::Stream& stream = lane == 0 ? *stream_ : *lanes_[lane - 1];
    if (lane > 0 && !entered[lane - 1]) {
      entered[lane - 1] = true;
      stream.wait(*begin);
    }
    for (int w : step->waits) stream.wait(*done[static_cast<size_t>(w) - part.first]);
    enqueue(r, *step, stream, options);
    const auto number = static_cast<size_t>(step - &steps[part.first]);
    if (wanted[number]) stream.record(*(done[number] = &lane_event()));
  }
  for (size_t lane = 0; lane < entered.size(); ++lane) {
    if (!entered[lane]) continue;
    device::Event& end = lane_event();
    lanes_[lane]->record(end);
    stream_->wait(end);
  }
}

}  // namespace pelton::runtime
