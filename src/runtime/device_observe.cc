// SPDX-License-Identifier: Apache-2.0
// What is told of a run on a device: times and values of its steps, and where it failed.
#include "base/clock.h"
#include "ir/op.h"
#include "runtime/device_frame.h"

namespace pelton::runtime {

using namespace ir;

namespace {

constexpr size_t kNamedPlaces = 4;  // kernels that a message lists

}  // namespace

void DeviceFrame::run_observed(const Ready& r, const Step& step, const RunOptions& options) {
  if (!step_begin_) {
    step_begin_ = device_->make_event(true);
    step_end_ = device_->make_event(true);
  }
  stream_->synchronize();
  int64_t start_ns = now_ns();
  stream_->record(*step_begin_);
  enqueue(r, step, *stream_, options);
  stream_->record(*step_end_);
  with_place(region_.graph().describe(step.node), [&] { step_end_->synchronize(); });
  auto end_ns = start_ns + static_cast<int64_t>(step_end_->ms_since(*step_begin_) * 1e6);
  if (!options.plain_values) return report_sizes(r, step, start_ns, end_ns, options);
  host_addresses(r, step, true);
  report(host_view_, step, start_ns, end_ns, options);
}

// Without the copies to the host that values need.
void DeviceFrame::report_sizes(const Ready& r, const Step& step, int64_t start_ns, int64_t end_ns,
                               const RunOptions& options) const {
  const Graph& g = region_.graph();
  auto sizes = [&](uint32_t first, uint32_t count) {
    std::vector<HostValue> out;
    for (uint32_t i = first; i < first + count; ++i) {
      const Ref& ref = r.program->refs[i];
      HostValue value;
      if (ref.place == Place::none && ref.value)
        value = HostValue::token();
      else if (ref.value)
        value = Tensor::borrow(g.type(ref.value).dtype, ref.dims, nullptr, nullptr);
      out.push_back(std::move(value));
    }
    return out;
  };
  std::vector<HostValue> inputs = sizes(step.first_in, step.in_count);
  std::vector<HostValue> outputs = sizes(step.first_out, step.out_count);
  options.observe({g, step.node, region_.nodes()[step.position].implementation, start_ns, end_ns,
                   region_.depth(), inputs, outputs});
}

std::string DeviceFrame::places() const {
  std::string out = cat("graph '", region_.graph().name, "'");
  const std::vector<Region::Node>& nodes = region_.nodes();
  std::vector<std::string> names;
  for (const Region::Node& n : nodes)
    if (n.on_device) names.push_back(region_.graph().describe(n.id));
  if (names.size() > kNamedPlaces) return cat(out, ", one of ", names.size(), " kernels");
  for (const std::string& name : names) append(out, cat(", ", name));
  return out;
}

}  // namespace pelton::runtime
