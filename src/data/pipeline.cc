// SPDX-License-Identifier: Apache-2.0
#include "data/pipeline.h"

#include <algorithm>
#include <functional>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "data/pipeline_impl.h"

namespace pelton::data {

Pipeline::Pipeline(PipelineSpec spec, RunOptions options)
    : Pipeline(spec,
               std::shared_ptr<const Source>(
                   open_source(spec.source, spec.folder, spec.seed, cat(spec.name, " source"))),
               options) {}

Pipeline::Pipeline(PipelineSpec spec, std::shared_ptr<const Source> source, RunOptions options)
    : impl_(std::make_unique<Impl>(spec, std::move(source), options)) {}

Pipeline::~Pipeline() {
  impl_->core->drain();  // tasks that start later see that it is stopping, and leave
  impl_->core->end_helpers();
  impl_->core->maker.drop_caches();  // such tasks keep the rest alive, but not a GPU's memory
}

bool Pipeline::next(Batch& batch) {
  Impl& m = *impl_;
  Making& core = *m.core;
  if (m.step == core.order.steps()) {
    m.step = 0;
    ++m.epoch;
    return false;
  }
  const int64_t before = now_ns();
  const auto away = m.come(before);
  if (core.plan.empty()) m.learn_plan();
  m.enqueue();
  std::shared_ptr<Work> work = m.works.front();
  {
    std::unique_lock lock(core.mutex);
    core.consumer_away = false;
    core.wait_for(*work, lock);
    m.wait_ns += now_ns() - before;
    if (work->fatal) std::rethrow_exception(work->fatal);
    m.check_limit();
  }
  Batch out;
  out.epoch = work->epoch;
  out.step = work->step;
  out.bad = std::move(work->bad);
  std::vector<int64_t> keep;
  for (int64_t i = 0; i < work->count; ++i) {
    const size_t at = static_cast<size_t>(i);
    if (work->blank[at] && core.maker.spec().bad_samples != "mark" &&
        core.maker.spec().bad_samples != "replace")
      continue;
    keep.push_back(i);
    out.indices.push_back(work->items[at].index);
    out.valid.push_back(!work->blank[at]);
    out.padding += work->items[at].padding;
  }
  if (keep.empty())
    fail(ErrorCode::bad_format,
         cat("no sample of the batch could be used; the first: ",
             out.bad.empty() ? "" : cat(out.bad[0].origin, ": ", out.bad[0].reason)),
         core.maker.spec().name);
  work->builder->build(keep, work->blank, out, m.options.device);
  int64_t bytes = 0;
  for (const auto& [name, t] : out.fields)
    if (t.dtype() != DType::string) bytes += t.bytes();
  for (const DeviceField& f : out.on_device) bytes += byte_size(f.dtype, element_count(f.dims));
  m.keep_budget(bytes);
  core.maker.finish(out);
  m.works.pop_front();
  ++m.step;
  ++m.batches;
  batch = std::move(out);
  m.set_window();
  m.enqueue();
  m.leave(away);
  return true;
}

int64_t Pipeline::steps() const {
  return impl_->core->order.steps();
}
const Order& Pipeline::order() const {
  return impl_->core->order;
}
const Source& Pipeline::source() const {
  return impl_->core->maker.source();
}
const PipelineSpec& Pipeline::spec() const {
  return impl_->core->maker.spec();
}
const PipelineSpec& Pipeline::graph_part() const {
  return impl_->parts.graph;
}
const std::string& Pipeline::graph_field() const {
  return impl_->parts.field;
}
Sample Pipeline::make_sample(int64_t index, int64_t epoch) const {
  return impl_->core->maker.make(index, epoch);
}

PipelineReport Pipeline::report() const {
  const Impl& m = *impl_;
  Making& core = *m.core;
  PipelineReport r;
  std::lock_guard lock(core.mutex);
  r.samples = core.samples;
  r.batches = m.batches;
  r.bad = core.bad;
  r.bad_by_reason.assign(core.reasons.begin(), core.reasons.end());
  std::ranges::stable_sort(r.bad_by_reason, std::greater(), [](const auto& x) { return x.second; });
  r.read_seconds = static_cast<double>(core.maker.read_ns()) * 1e-9;
  for (size_t i = 0; i < core.maker.spec().stages.size(); ++i)
    r.stage_seconds.emplace_back(core.maker.spec().stages[i].op,
                                 static_cast<double>(core.maker.stage_ns(i)) * 1e-9);
  r.stage_seconds.emplace_back("finish", static_cast<double>(core.finish_ns) * 1e-9);
  r.wait_seconds = static_cast<double>(m.wait_ns) * 1e-9;
  r.batch_bytes = m.batch_bytes;
  r.in_flight = m.window;
  r.threads = threads();
  r.readers = core.pace.readers();
  r.waiting = core.pace.waiting();
  r.slowest_batch_seconds = static_cast<double>(core.pace.slowest_batch_ns()) * 1e-9;
  r.period_seconds = static_cast<double>(core.pace.period_ns()) * 1e-9;
  r.cached_samples = core.maker.cached_samples();
  r.cached_bytes = core.maker.cached_bytes();
  r.decoded_on_device = core.decoded_on_device;
  r.left_to_host = core.left_to_host;
  return r;
}

}  // namespace pelton::data
