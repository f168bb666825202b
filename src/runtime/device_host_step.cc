// SPDX-License-Identifier: Apache-2.0
// A step that the device does not take: its operands come to the host, its results go back.
#include "base/clock.h"
#include "base/thread_pool.h"
#include "ir/op.h"
#include "runtime/device_frame.h"

namespace pelton::runtime {

using namespace ir;

void DeviceFrame::fetch(const std::vector<ValueId>& roots) {
  bool any = false;
  for (ValueId root : roots) {
    if (!on_device_only(root)) continue;
    HostValue& to = host_[root.index];
    to = host_buffer(root);
    if (int64_t bytes = bytes_of(root); bytes > 0)
      stream_->download(to.tensor.mutable_data(), device_at_[root.index], bytes);
    on_host_[root.index] = any = true;
  }
  if (any) stream_->synchronize();
}

// Fills host_view_ with host copies of the step's operands, and of its results where those are computed
// already.
void DeviceFrame::host_addresses(const Ready& r, const Step& step, bool results) {
  const Program& p = *r.program;
  if (host_view_.program != r.program) {
    host_view_.program = r.program;
    host_view_.addresses.assign(p.refs.size(), nullptr);
  }
  uint32_t end = results ? step.first_out + step.out_count : step.first_in + step.in_count;
  std::vector<ValueId> wanted;
  for (uint32_t i = step.first_in; i < end; ++i) {
    const Ref& ref = p.refs[i];
    if (ref.place == Place::host || ref.place == Place::arena)
      wanted.push_back(region_.value(ref.value).root);
    if (ref.place == Place::input) fetch_input(ref.index);
  }
  fetch(wanted);
  for (uint32_t i = step.first_in; i < end; ++i) {
    const Ref& ref = p.refs[i];
    const bool computed = ref.place == Place::host || ref.place == Place::arena;
    host_view_.addresses[i] =
        address(ref, computed ? host_[region_.value(ref.value).root.index].tensor.data() : nullptr);
  }
}

void DeviceFrame::run_on_host(const Ready& r, const Step& step, const RunOptions& options) {
  const Program& p = *r.program;
  host_addresses(r, step, false);
  int64_t bytes = 0;
  for (uint32_t i = 0; i < step.out_count; ++i) {
    const Ref& ref = p.refs[step.first_out + i];
    void*& at = host_view_.addresses[step.first_out + i];
    at = nullptr;
    if (ref.place == Place::none || !region_.value(ref.value).sized) continue;
    ValueId root = region_.value(ref.value).root;
    host_[root.index] = host_buffer(root);
    at = host_[root.index].tensor.mutable_data();
    bytes += ref.bytes;
  }
  int64_t start_ns = options.observe ? now_ns() : 0;
  auto work = [&] {
    if (!step.kernel) return run_reference(host_view_, step, options);
    backend::RunArgs args;
    void* const* at = host_view_.addresses.data();
    args.in = {at + step.first_in, step.in_count};
    args.out = {at + step.first_out, step.out_count};
    if (step.scratch_bytes > 0) {
      if (!host_scratch_.defined() || host_scratch_.bytes() < step.scratch_bytes)
        host_scratch_ = Tensor(DType::u8, {step.scratch_bytes});
      args.scratch = host_scratch_.mutable_data();
    }
    args.random = options.random;
    run_prepared(step, args);
  };
  if (bytes > kSmallRunBytes)
    run_in_pool(work);
  else
    work();
  device_->activate();  // sub-graphs and pools may leave this thread on another
  if (options.observe) report(host_view_, step, start_ns, now_ns(), options);
  for (uint32_t i = 0; i < step.out_count; ++i) {
    const Ref& ref = p.refs[step.first_out + i];
    if (ref.place == Place::none) continue;
    const Region::Value& value = region_.value(ref.value);
    const Region::Value& root = region_.value(value.root);
    on_host_[value.root.index] = true;
    if (!root.device_reads || !root.sized || ref.bytes == 0) continue;
    void* at = r.addresses[step.first_out + i];
    device_at_[value.root.index] = at;
    stream_->upload(at, host_[value.root.index].tensor.data(), ref.bytes);
  }
}

}  // namespace pelton::runtime
