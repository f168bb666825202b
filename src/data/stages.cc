// SPDX-License-Identifier: Apache-2.0
#include "data/stages.h"

#include <algorithm>

#include "base/clock.h"
#include "base/hash.h"
#include "data/evaluation.h"
#include "data/pace.h"

namespace pelton::data {
namespace {

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

SampleMaker::SampleMaker(PipelineSpec spec, std::shared_ptr<const Source> source)
    : spec_(training_form(std::move(spec))),
      source_(std::move(source)),
      times_(new std::atomic<int64_t>[spec_.stages.size() + 1] {}) {
  const Match match = match_from(spec_.match);
  for (size_t i = 0; i < spec_.stages.size(); ++i) {
    const StageSpec& s = spec_.stages[i];
    const std::string where = stage_place(spec_, i);
    Options options = s.options;
    if (auto device = options.find("device"); s.op != "decode" && device != options.end()) {
      if (device->second.kind != Param::Kind::text || device->second.texts[0] != "cpu")
        fail(ErrorCode::no_device,
             cat("device = ", device->second.str(), ": ", s.op,
                 " runs on a GPU only within a training step that takes it"),
             where, "leave 'device' out: the trainer moves what it can by itself");
      options.erase(device);
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
      for (size_t before = 0; before < i; ++before)
        if (const StageSpec& b = spec_.stages[before]; draws(b, where))
          fail(ErrorCode::usage, cat("the cache stands behind ", b.op, ", which is random"), where,
               "put it before the first random stage");
      step.cache = std::make_unique<SampleCache>(args.integer("memory_mib") << 20);
    } else {
      step.alone = kind.make(args, match);
    }
    if (!step.cache) step.number = numbered_++;
    if (s.number >= 0) step.number = static_cast<uint32_t>(s.number);
    stages_.push_back(std::move(step));
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
