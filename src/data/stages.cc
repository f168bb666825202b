// SPDX-License-Identifier: Apache-2.0
#include "data/stages.h"

#include <algorithm>
#include <span>

#include "base/clock.h"
#include "base/hash.h"
#include "data/evaluation.h"
#include "data/pace.h"

namespace pelton::data {
namespace {

// Stages whose option 'device' is their own, and no wish for the training step.
bool has_device(std::string_view op) {
  return op == "decode" || op == "cache";
}

[[noreturn]] void fail_outside_of_step(const StageSpec& s, const Param& device, const std::string& where) {
  const std::string what =
      cat("device = ", device.str(), ": ", s.op, " runs on a GPU only within a training step that takes it");
  if (s.op == "resize")
    fail(ErrorCode::no_device,
         cat(what,
             ": straight behind decode, mode stretch, without match, from a source whose pictures are pixels "
             "of one size, for a model with a target"),
         where, "leave 'device' out: the host resizes");
  fail(ErrorCode::no_device, what, where, "leave 'device' out: the trainer moves what it can by itself");
}

std::string text_of(const Options& options) {
  std::string out;
  for (const auto& [key, value] : options) append(out, cat(key, "=", value.str(), ";"));
  return out;
}

const Schema& parts_schema(bool mixed) {
  using T = OptionType;
  static const Schema concat = {"concat", "all parts one after another", {}};
  static const Schema mix = {"mix",
                             "parts by weight",
                             {{"weights", T::numbers, {}, "one for each part", 0},
                              {"count", T::integer, {}, "samples an epoch", 1}}};
  return mixed ? mix : concat;
}

}  // namespace

Match match_from(const std::string& s) {
  return s == "pillow"        ? Match::pillow
         : s == "torchvision" ? Match::torchvision
         : s == "opencv"      ? Match::opencv
                              : Match::none;
}

std::unique_ptr<Source> open_source(const SourceSpec& spec, const std::string& folder, uint64_t seed,
                                    const std::string& where) {
  if (spec.kind != "concat" && spec.kind != "mix") {
    if (!spec.parts.empty())
      fail(ErrorCode::usage, cat("source kind '", spec.kind, "' takes no 'sources'"), where,
           "kinds concat and mix do");
    return make_source(spec.kind, spec.options, folder, where);
  }
  const Args args(parts_schema(spec.kind == "mix"), spec.options, where);
  if (spec.parts.empty())
    fail(ErrorCode::usage, cat("source kind '", spec.kind, "' needs 'sources'"), where,
         "sources = [{ kind = ... }, { kind = ... }]");
  std::vector<std::unique_ptr<Source>> parts;
  for (const SourceSpec& p : spec.parts) parts.push_back(open_source(p, folder, seed, where));
  if (spec.kind == "concat") return concatenate(std::move(parts));
  return mix(std::move(parts), args.numbers("weights"), args.integer("count"), seed);
}

SampleMaker::SampleMaker(PipelineSpec spec, std::shared_ptr<const Source> source,
                         std::shared_ptr<device::Device> device)
    : spec_(training_form(std::move(spec))),
      source_(std::move(source)),
      times_(new std::atomic<int64_t>[spec_.stages.size() + 1] {}) {
  const Match match = match_from(spec_.match);
  for (size_t i = 0; i < spec_.stages.size(); ++i) {
    const StageSpec& s = spec_.stages[i];
    const std::string where = stage_place(spec_, i);
    Options options = s.options;
    if (auto side = options.find("device"); !has_device(s.op) && side != options.end()) {
      if (side->second.kind != Param::Kind::text || side->second.texts[0] != "cpu")
        fail_outside_of_step(s, side->second, where);
      options.erase(side);
    }
    const StageKind& kind = stage_kind(s.op, where);
    const Args args(kind.schema, options, where);
    if (kind.make_batch) {
      batch_stages_.push_back(kind.make_batch(args));
      continue;
    }
    if (!batch_stages_.empty())
      fail(ErrorCode::usage, cat(s.op, " works on samples and stands behind a stage that works on batches"),
           where, "put mixup, cutmix and pad_longest last");
    Step step;
    if (kind.make_join) {
      step.join = kind.make_join(args);
    } else if (s.op == "cache") {
      step.cache = make_cache(i, args, device);
    } else {
      step.alone = kind.make(args, match);
    }
    if (!step.cache) step.number = numbered_++;
    if (s.number >= 0) step.number = static_cast<uint32_t>(s.number);
    stages_.push_back(std::move(step));
  }
}

std::shared_ptr<SampleCache> SampleMaker::make_cache(size_t stage, const Args& args,
                                                     const std::shared_ptr<device::Device>& device) const {
  const std::string where = stage_place(spec_, stage);
  const std::span stages(spec_.stages);
  const Match match = match_from(spec_.match);
  for (const StageSpec& before : stages.first(stage))
    if (draws(before, where))
      fail(ErrorCode::usage, cat("the cache stands behind ", before.op, ", which is random"), where,
           "put it before the first random stage");
  const int64_t limit = args.integer("memory_mib") << 20;
  if (!names_gpu(spec_.stages[stage])) return host_cache(limit);
  if (std::ranges::none_of(stages.first(stage), [](const StageSpec& s) { return s.op == "decode"; }))
    fail(ErrorCode::usage, "a cache on the GPU keeps pictures, and there are none yet", where,
         "put it behind decode, or leave 'device' out");
  for (const StageSpec& before : stages.first(stage))
    if (const auto share = before.options.find("cpu_share");
        names_gpu(before) && share != before.options.end() && share->second.str() != "0")
      fail(ErrorCode::usage, "the cache stands behind decode with cpu_share, which is drawn", where,
           "leave cpu_share out: later epochs decode nothing");
  for (const StageSpec& behind : stages.subspan(stage + 1))
    if (behind.op == "cache" || !(device_job_takes(behind.op, match) || leaves_picture(behind.op) ||
                                  stage_kind(behind.op, where).make_batch))
      fail(ErrorCode::usage,
           cat("the cache on the GPU stands before ", behind.op, ", which works on the host",
               match == Match::none ? "" : cat(" with match = \"", spec_.match, "\"")),
           where, cat("put it behind ", behind.op, ", or leave its 'device' out"));
  PELTON_CHECK(device, where);
  try {
    return device_cache(limit, device);
  } catch (const Error& e) {
    throw e.within(where);
  }
}

Sample SampleMaker::read(int64_t index, int64_t* waited_ns) const {
  if (!waited_ns) return source_->read(index);
  struct Wait {
    ~Wait() { *to += (now_ns() - before) - (thread_cpu_ns() - cpu_before); }
    int64_t* to;
    int64_t before = now_ns(), cpu_before = thread_cpu_ns();
  } const wait{waited_ns};
  return source_->read(index);
}

// The sample as the first `stage` stages make it.
Sample SampleMaker::make_until(size_t stage, int64_t index, int64_t epoch, std::string* op,
                               int64_t* waited_ns) const {
  size_t first = stage;
  std::shared_ptr<const Sample> kept;
  while (first > 0 && !kept) {
    --first;
    if (stages_[first].cache) kept = stages_[first].cache->find(index);
  }
  if (op) *op = "read";
  int64_t before = now_ns();
  Sample s = kept ? *kept : read(index, waited_ns);
  for (size_t i = kept ? first + 1 : 0; i < stage; ++i) {
    const int64_t now = now_ns();
    times_[i].fetch_add(now - std::exchange(before, now), std::memory_order_relaxed);
    if (op) *op = spec_.stages[i].op;
    const Draw draw(spec_.seed, static_cast<uint64_t>(epoch), static_cast<uint64_t>(index),
                    stages_[i].number);
    try {
      if (const Step& step = stages_[i]; step.cache) {
        step.cache->keep(s);
      } else if (step.join) {
        step.join(s, draw, {source_->size(), [&](int64_t other) {
                              return make_until(i, other, epoch, nullptr, waited_ns);
                            }});
      } else {
        step.alone(s, draw);
      }
    } catch (const Error& e) {
      throw e.within(s.origin.str());
    }
  }
  times_[stage].fetch_add(now_ns() - before, std::memory_order_relaxed);
  return s;
}

int64_t SampleMaker::cached_samples() const {
  int64_t n = 0;
  for (const Step& s : stages_)
    if (s.cache) n += s.cache->samples();
  return n;
}

int64_t SampleMaker::cached_bytes() const {
  int64_t n = 0;
  for (const Step& s : stages_)
    if (s.cache) n += s.cache->bytes();
  return n;
}

void SampleMaker::drop_caches() {
  for (Step& s : stages_) s.cache.reset();
}

void SampleMaker::finish(Batch& batch) const {
  for (size_t i = 0; i < batch_stages_.size(); ++i)
    batch_stages_[i](batch, [&](int64_t index) {
      return Draw(spec_.seed, static_cast<uint64_t>(batch.epoch), static_cast<uint64_t>(index),
                  numbered_ + static_cast<uint32_t>(i));
    });
}

std::string fingerprint(const PipelineSpec& spec, const Source& source) {
  std::string text = cat(spec.seed, " ", spec.match, " ", spec.source.shuffle, " ", spec.bad_samples, " ",
                         source.identity());
  if (spec.source.shuffle_window) append(text, cat(" window ", spec.source.shuffle_window));
  if (spec.bucket) append(text, cat(" bucket ", spec.bucket));
  for (const StageSpec& s : spec.stages)
    if (s.op != "cache") append(text, cat("|", s.op, ":", text_of(s.options)));
  return checksum(text).str().substr(0, 16);
}

}  // namespace pelton::data
