// SPDX-License-Identifier: Apache-2.0
#include "data/pipeline.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "data/evaluation.h"
#include "data/lower.h"
#include "data/making.h"

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

// A run's description in two parts, and what it is known by.
struct Parts {
  Parts(const PipelineSpec& spec, const Source& source, const RunOptions& o)
      : host(o.evaluation ? evaluation_form(spec) : training_form(spec)),
        identity(fingerprint(host, source)) {
    if (!o.for_graph) return;
    if (o.evaluation) fail(ErrorCode::usage, "for_graph is for the training form", spec.name);
    if (has_targets(source)) return;
    TrainingSplit split = split_training(spec);
    host = std::move(split.host);
    graph = std::move(split.graph);
    field = std::move(split.field);
  }
  PipelineSpec host, graph;
  std::string field;     // that the graph takes
  std::string identity;  // the same wherever the cut is
};

}  // namespace

struct Pipeline::Impl {
  Impl(const PipelineSpec& spec, std::shared_ptr<const Source> source, RunOptions o)
      : options(o),
        parts(spec, *source, o),
        core(std::make_shared<Making>(SampleMaker(parts.host, source), order_of(spec, *source, o))) {
    if (options.prefetch < 0)
      fail(ErrorCode::usage, cat("prefetch is ", options.prefetch), "",
           "use 1 or more, or 0 for as many as measured rates ask for");
    const StageSpec* decode = decode_on_device(core->maker.spec());
    if (!decode) return;
    if (!options.device)
      fail(ErrorCode::no_device, "device = \"gpu\": nothing here runs on a GPU", decode->where,
           "train with --device cuda, set RunOptions::device, or leave 'device' out");
    core->stays = options.on_device && !core->maker.works_on_batches();
    pass = std::make_unique<DevicePass>(options.device, kLanes);
    core->pass = pass.get();
  }

  // Learns the shape of a sample from the first good one, and how many batches fit the budget.
  void learn_plan() {
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
      fail(ErrorCode::bad_format,
           cat("none of the first ", std::min(n, kProbed),
               " samples can be read; the first one: ", first_error),
           core->maker.spec().name);
    buffers = std::make_shared<BufferPool>(options.device);
    set_window();
    keep_budget(plan_bytes(core->plan) * options.batch);
  }

  // How many batches may be in flight, the one that the consumer waits for among them.
  void set_window() {
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

  // A batch takes so many bytes: as the plan says, or as one of larger samples turned out. From now on no
  // more of them are in flight than the budget holds.
  void keep_budget(int64_t bytes) {
    if (bytes <= batch_bytes) return;
    fit = options.memory_budget_bytes / bytes;
    if (fit < 1)
      fail(ErrorCode::limit,
           cat("one batch takes ", bytes, " bytes, the memory budget is ", options.memory_budget_bytes),
           core->maker.spec().name, "raise memory_budget_bytes or use a smaller batch");
    batch_bytes = bytes;
    if (fit >= window) return;
    log_warn("data: ", fit, " instead of ", window, " batches in flight, to stay within ",
             options.memory_budget_bytes, " bytes");
    set_window();
  }

  void enqueue() {
    while (static_cast<int64_t>(works.size()) < window) {
      auto work = std::make_shared<Work>();
      work->epoch = next_epoch;
      work->step = next_step;
      work->count = core->order.count(next_epoch, next_step);
      work->left = work->count + (pass ? 1 : 0);
      work->builder = std::make_unique<BatchBuilder>(core->plan, work->count, buffers);
      for (int64_t i = 0; i < work->count; ++i)
        work->items.push_back(core->order.at(next_epoch, next_step, i));
      work->blank.assign(static_cast<size_t>(work->count), 0);
      if (++next_step == core->order.steps()) next_step = 0, ++next_epoch;
      works.push_back(work);
      core->enqueue(work);
    }
  }

  void check_limit() {
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

  RunOptions options;
  Parts parts;
  std::shared_ptr<Making> core;
  std::shared_ptr<BufferPool> buffers;
  std::unique_ptr<DevicePass> pass;                   // with a decode stage on the device
  std::deque<std::shared_ptr<Work>> works;            // in flight, oldest first
  int64_t epoch = 0, step = 0;                        // of the batch that next() gives next
  int64_t next_epoch = 0, next_step = 0;              // of the batch that is queued next
  int64_t fit = std::numeric_limits<int64_t>::max();  // batches within the memory budget
  int64_t window = 0, batch_bytes = 0, batches = 0, wait_ns = 0;

  // When, by which thread, and at which of its CPU times next() last gave a batch.
  struct Left {
    int64_t ns = 0, cpu_ns = 0;
    std::thread::id thread;
  } left;
  // The consumer asks for a batch: how long it was away, and how much of that on the CPU.
  std::pair<int64_t, int64_t> come(int64_t now) const {
    const int64_t away = left.ns ? now - left.ns : 0;
    const bool known = left.thread == std::this_thread::get_id();
    return {away, known ? thread_cpu_ns() - left.cpu_ns : away};
  }
  void leave(std::pair<int64_t, int64_t> away) {
    const Left now{now_ns(), thread_cpu_ns(), std::this_thread::get_id()};
    std::lock_guard lock(core->mutex);
    if (left.ns) core->pace.batch_taken(now.ns - left.ns, away.first, away.second);
    left = now;
    core->consumer_away = true;
    core->wake_helpers();
  }
};

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

PipelineState Pipeline::state() const {
  const Impl& m = *impl_;
  const bool at_end = m.step == m.core->order.steps();
  const OrderOptions& o = m.core->order.options();
  const std::string order =
      checksum(cat(o.batch, " ", o.shards, " ", o.shard, " ", static_cast<int>(o.last), " ", o.stick))
          .str()
          .substr(0, 8);
  return {at_end ? m.epoch + 1 : m.epoch, at_end ? 0 : m.step, cat(m.parts.identity, "-", order)};
}

void Pipeline::restore(const PipelineState& s) {
  Impl& m = *impl_;
  const std::string mine = state().fingerprint, where = m.core->maker.spec().name;
  if (s.fingerprint.substr(0, 16) != mine.substr(0, 16))
    fail(ErrorCode::usage,
         "the saved state belongs to another pipeline: description, seed or source have changed", where,
         "resume with the pipeline it was saved from");
  if (s.step != 0 && s.fingerprint != mine)
    fail(ErrorCode::usage,
         "the saved state is in the middle of an epoch, which batch size, shards and last-batch policy must "
         "not change",
         where, "resume with the same ones, or from the end of an epoch");
  if (s.epoch < 0 || s.epoch > int64_t{1} << 53 || s.step < 0 || s.step >= m.core->order.steps())
    fail(ErrorCode::usage,
         cat("the saved state names epoch ", s.epoch, ", step ", s.step, " of ", m.core->order.steps()),
         where);
  m.core->drain();
  m.core->reopen();
  m.works.clear();
  m.epoch = m.next_epoch = s.epoch;
  m.step = m.next_step = s.step;
}

std::string PipelineState::str() const {
  return cat("1 ", epoch, " ", step, " ", fingerprint);
}

PipelineState PipelineState::parse(const std::string& text) {
  PipelineState s;
  int64_t version = 0;
  const char *at = text.data(), *end = at + text.size();
  for (int64_t* v : {&version, &s.epoch, &s.step}) {
    auto r = std::from_chars(at, end, *v);
    if (r.ec != std::errc() || r.ptr == end || *r.ptr != ' ')
      fail(ErrorCode::bad_format, cat("'", text.substr(0, 80), "' is not a pipeline state"));
    at = r.ptr + 1;
  }
  if (version != 1)
    fail(ErrorCode::unsupported_version, cat("pipeline state version ", version, " is not known"));
  s.fingerprint.assign(at, end);
  return s;
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
