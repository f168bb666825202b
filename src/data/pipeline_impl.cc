// SPDX-License-Identifier: Apache-2.0
#include "data/pipeline_impl.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "data/evaluation.h"
#include "data/lower.h"

namespace pelton::data {
namespace {

constexpr int64_t kProbed = 100;   // samples tried until one can be read
constexpr int64_t kBadGrace = 10;  // bad samples that never stop a run, unless bad_limit is 0
constexpr int64_t kLanes = 2;  // batches that a device decodes at once: one is prepared while the other runs

Order order_of(const PipelineSpec& spec, const Source& source, const RunOptions& o) {
  OrderOptions order;
  order.samples = source.size();
  order.batch = o.batch;
  order.shards = o.shards;
  order.shard = o.shard;
  order.seed = spec.seed;
  order.shuffle = spec.source.shuffle;
  order.last = o.last;
  order.stick = o.stick_to_shard;
  order.window = spec.source.shuffle_window;
  if (order.window && !order.shuffle)
    fail(ErrorCode::usage, "'shuffle_window' without shuffle", cat(spec.name, " source"),
         "add: shuffle = true");
  if (spec.bucket > 1) {
    order.bucket = spec.bucket;
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < order.samples; ++i) {
      sizes.push_back(source.stored_bytes(i));
      if (sizes.back() < 0)
        fail(ErrorCode::usage,
             cat("source kind '", spec.source.kind, "' does not tell the sizes of its samples"), spec.name,
             "leave 'bucket' out, or convert to tar shards");
    }
    order.sizes = std::make_shared<const std::vector<int64_t>>(std::move(sizes));
  }
  return Order(order);
}

// Whether samples come with boxes, masks or key points; told by the first one that can be read.
bool has_targets(const Source& source) {
  for (int64_t i = 0; i < std::min<int64_t>(source.size(), kProbed); ++i) {
    try {
      const Sample s = source.read(i);
      return std::ranges::any_of(s.fields, [](const auto& f) { return is_target(f.first); });
    } catch (const Error& e) {
      if (is_fatal(e.code())) throw;
    }
  }
  return false;
}

// The device that stages ask for; null if none does.
std::shared_ptr<device::Device> device_for(const PipelineSpec& spec, const RunOptions& o) {
  const StageSpec* const stage = stage_on_device(spec);
  if (!stage) return nullptr;
  if (!o.device)
    fail(ErrorCode::no_device, cat("device = \"gpu\" for ", stage->op, ": nothing here runs on a GPU"),
         stage->where, "train with --device cuda, set RunOptions::device, or leave 'device' out");
  return o.device;
}

// The field of the source that the pictures are in.
std::string picture_field(const PipelineSpec& spec) {
  for (const StageSpec& s : spec.stages)
    if (const auto field = s.options.find("field"); s.op == "decode" && field != s.options.end())
      return field->second.texts.empty() ? "" : field->second.texts[0];
  return "image";
}

}  // namespace

PipelineParts::PipelineParts(const PipelineSpec& spec, const Source& source, const RunOptions& o)
    : host(o.evaluation ? evaluation_form(spec) : training_form(spec)), identity(fingerprint(host, source)) {
  if (!o.for_graph) return;
  if (o.evaluation) fail(ErrorCode::usage, "for_graph is for the training form", spec.name);
  if (has_targets(source)) return;
  TrainingSplit split = split_training(spec, source.picture_dims(picture_field(spec)));
  host = std::move(split.host);
  graph = std::move(split.graph);
  field = std::move(split.field);
}

Pipeline::Impl::Impl(const PipelineSpec& spec, std::shared_ptr<const Source> source, RunOptions o)
    : options(o),
      parts(spec, *source, o),
      core(std::make_shared<Making>(SampleMaker(parts.host, source, device_for(parts.host, o)),
                                    order_of(spec, *source, o))) {
  if (options.prefetch < 0)
    fail(ErrorCode::usage, cat("prefetch is ", options.prefetch), "",
         "use 1 or more, or 0 for as many as measured rates ask for");
  const std::vector<StageSpec>& stages = core->maker.spec().stages;
  if (!stage_on_device(core->maker.spec())) return;
  core->stays = options.on_device && !core->maker.works_on_batches();
  const bool files =
      std::ranges::any_of(stages, [](const StageSpec& s) { return s.op == "decode" && names_gpu(s); });
  pass = std::make_unique<DevicePass>(options.device, kLanes, files);
  core->pass = pass.get();
}

void Pipeline::Impl::learn_plan() {
  std::string first_error;
  const int64_t n = core->order.options().samples, first = core->order.at(epoch, 0, 0).index;
  for (int64_t i = 0; i < std::min(n, kProbed); ++i) {
    try {
      int64_t waited_ns = 0;
      const Stopwatch watch;
      Sample s = core->maker.make((first + i) % n, epoch, nullptr, &waited_ns);
      core->plan = plan_of(s);
      std::lock_guard lock(core->mutex);
      core->pace.sample_made(watch.elapsed_ns(), waited_ns);
      break;
    } catch (const Error& e) {
      if (is_fatal(e.code())) throw;
      if (first_error.empty()) first_error = e.what();
    }
  }
  if (core->plan.empty())
    fail(
        ErrorCode::bad_format,
        cat("none of the first ", std::min(n, kProbed), " samples can be read; the first one: ", first_error),
        core->maker.spec().name);
  buffers = std::make_shared<BufferPool>(options.device);
  set_window();
  keep_budget(plan_bytes(core->plan) * options.batch);
}

void Pipeline::Impl::set_window() {
  int64_t ahead = options.prefetch;
  if (ahead == 0) {
    std::lock_guard lock(core->mutex);
    ahead = core->pace.ahead(options.batch);
  }
  window = std::min(ahead + 1, fit);
  // Batches that the consumer holds: two, and as many again that are on their way to a device.
  const int64_t held = options.device ? 4 : 2;
  const size_t fields = core->plan.size() + (pass ? 1 : 0);
  buffers->keep(static_cast<size_t>(window + held) * fields);
}

void Pipeline::Impl::keep_budget(int64_t bytes) {
  if (bytes <= batch_bytes) return;
  fit = options.memory_budget_bytes / bytes;
  if (fit < 1)
    fail(ErrorCode::limit,
         cat("one batch takes ", bytes, " bytes, the memory budget is ", options.memory_budget_bytes),
         core->maker.spec().name, "use a smaller batch (in C++ also: raise RunOptions::memory_budget_bytes)");
  batch_bytes = bytes;
  if (fit >= window) return;
  log_warn("data: ", fit, " instead of ", window, " batches in flight, to stay within ",
           options.memory_budget_bytes, " bytes");
  set_window();
}

void Pipeline::Impl::enqueue() {
  while (static_cast<int64_t>(works.size()) < window) {
    auto work = std::make_shared<Work>();
    work->epoch = next_epoch;
    work->step = next_step;
    work->count = core->order.count(next_epoch, next_step);
    work->left = work->count + (pass ? 1 : 0);
    work->builder = std::make_unique<BatchBuilder>(core->plan, work->count, buffers);
    for (int64_t i = 0; i < work->count; ++i) work->items.push_back(core->order.at(next_epoch, next_step, i));
    work->blank.assign(static_cast<size_t>(work->count), 0);
    if (++next_step == core->order.steps()) next_step = 0, ++next_epoch;
    works.push_back(work);
    core->enqueue(work);
  }
}

void Pipeline::Impl::check_limit() const {
  const double limit = core->maker.spec().bad_limit;
  const int64_t tried = core->samples + core->replacements;
  const auto allowed = static_cast<int64_t>(limit * static_cast<double>(tried));
  if (core->bad <= allowed || (limit > 0 && core->bad <= kBadGrace)) return;
  const auto top = std::ranges::max_element(core->reasons, {}, [](const auto& r) { return r.second; });
  fail(ErrorCode::limit,
       cat(core->bad, " of ", tried, " samples could not be used, above bad_limit = ", limit,
           "; most often: ", top->first, " (", top->second, " times)"),
       core->maker.spec().name, "run pelton data --verify to list the bad samples");
}

std::pair<int64_t, int64_t> Pipeline::Impl::come(int64_t now) const {
  const int64_t away = left.ns ? now - left.ns : 0;
  const bool known = left.thread == std::this_thread::get_id();
  return {away, known ? thread_cpu_ns() - left.cpu_ns : away};
}

void Pipeline::Impl::leave(std::pair<int64_t, int64_t> away) {
  const Left now{now_ns(), thread_cpu_ns(), std::this_thread::get_id()};
  std::lock_guard lock(core->mutex);
  if (left.ns) core->pace.batch_taken(now.ns - left.ns, away.first, away.second);
  left = now;
  core->consumer_away = true;
  core->wake_helpers();
}

}  // namespace pelton::data
