// SPDX-License-Identifier: Apache-2.0
#include "compiler/best.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "compiler/ranges.h"
#include "compiler/timing.h"
#include "compiler/tune.h"
#include "ir/text.h"

namespace pelton::compiler {

using namespace ir;

namespace {

constexpr size_t kSegments = 4, kLeastContractions = 2;  // of a segment
constexpr double kSeconds = 60;                          // without --time-budget

std::vector<std::string> precisions_of(const std::string& text, const device::Target& target) {
  if (text == "best") {
    if (target.kind == device::Kind::cuda) return {"fp32", "tf32", "bf16", "fp16"};
    return {"fp32", "bf16", "fp16"};
  }
  static constexpr std::string_view kKnown[] = {"fp32", "tf32", "bf16", "fp16", "int8"};
  std::vector<std::string> out;
  for (size_t at = 0;;) {
    const size_t end = std::min(text.find(',', at), text.size());
    out.push_back(text.substr(at, end - at));
    if (std::find(std::begin(kKnown), std::end(kKnown), out.back()) == std::end(kKnown))
      fail(ErrorCode::usage, cat("unknown precision '", out.back(), "' in '", text, "'"), "--precision",
           "choose from fp32, tf32, bf16, fp16 and int8");
    if (end == text.size()) return out;
    at = end + 1;
  }
}

using Results = std::vector<std::vector<Tensor>>;  // by sample

bool finite_where(const Results& reference, const Results& results) {
  for (size_t s = 0; s < reference.size(); ++s)
    for (size_t o = 0; o < reference[s].size(); ++o) {
      const Tensor &want = reference[s][o], &got = results[s][o];
      if (!is_float(want.dtype()) || want.dims() != got.dims()) continue;
      for (int64_t i = 0; i < want.count(); ++i)
        if (std::isfinite(want.get_double(i)) && !std::isfinite(got.get_double(i))) return false;
    }
  return true;
}

class Search {
 public:
  Search(const Graph& graph, const device::Target& target, const Options& options,
         const backend::Registry& registry, const Measured& measured)
      : graph_(graph),
        target_(target),
        options_(options),
        registry_(registry),
        measured_(measured),
        tuner_(measured.tactics ? *measured.tactics : own_, seconds(measured), registry, target) {
    contractions_ = named_contractions(graph_);
    options_.print_after.clear();
    options_.fired = nullptr;
    key_ = cat("precision ", graph.name, " #",
               checksum(print(graph_, {.max_elements = 2, .names = false})).str().substr(0, 16));
    for (const auto& [input, shape] : options.shapes)
      for (const passes::DimRange& d : shape) append(key_, cat(" ", d.min, ":", d.opt, ":", d.max));
  }

  runtime::Plan run() {
    Stopwatch watch;
    const std::vector<std::string> asked = precisions_of(options_.precision, target_);
    collect(asked);
    if (plans_.empty())
      fail(ErrorCode::usage, notes_.empty() ? "no precision is left" : notes_.back(), "--precision",
           "name precisions that the target has");
    const size_t chosen = tuner_.choose_form(key_, names_, [&](size_t i) { return plans_[i]; });
    names_used_ = names_[chosen];
    runtime::Plan best = std::move(plans_[chosen]);
    plans_.clear();
    if (names_used_ == "fp16" || names_used_ == "bf16") keep_segments(best);
    for (const std::string& note : tuner_.notes()) notes_.push_back(note);
    if (interrupted()) notes_.push_back("interrupted: the best so far");
    best.passes.push_back({"best", 0, watch.seconds(), notes_});
    best.compile_seconds = watch.seconds();
    return best;
  }

 private:
  static double seconds(const Measured& m) {
    return m.time_budget_seconds > 0 ? m.time_budget_seconds : kSeconds;
  }

  runtime::Plan compile_in(const std::string& precision, const std::set<std::string>& full) {
    Options o = options_;
    o.precision = precision;
    o.full_precision.insert(full.begin(), full.end());
    Measured m;
    m.quantize = measured_.quantize;
    m.quantize.max_drop = -1;  // looked at here
    return compile(graph_, target_, o, registry_, m);
  }

  Results results_of(const runtime::Plan& plan) {
    if (!measured_.quantize.samples.empty())
      return run_samples(plan, measured_.quantize.samples, registry_, "running samples");
    return {run_made_up(plan, registry_, target_)};
  }

  // Plans of the precisions that do.
  void collect(const std::vector<std::string>& asked) {
    runtime::Plan plain = compile_in("fp32", {});
    Results reference;
    try {
      reference = results_of(plain);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::cancelled || !interrupted()) throw;
      plans_.push_back(std::move(plain));
      names_.push_back("fp32");
      return;
    }
    for (const std::string& precision : asked) {
      if (!plans_.empty() && (tuner_.spent() || interrupted())) {
        notes_.push_back(cat(precision, " was not tried: the time is up"));
        continue;
      }
      try {
        runtime::Plan plan = compile_in(precision, {});
        if (precision != "fp32") {
          const Results results = results_of(plan);
          if (!finite_where(reference, results)) {
            notes_.push_back(cat(precision, " is left out: its results are not finite"));
            continue;
          }
          const double drop = drop_percent(reference, results);
          if (measured_.quantize.max_drop >= 0 && drop > measured_.quantize.max_drop) {
            notes_.push_back(cat(precision, " is left out: the result loses ", drop, "%"));
            continue;
          }
        }
        plans_.push_back(std::move(plan));
        names_.push_back(precision);
      } catch (const Error& e) {
        if (e.code() == ErrorCode::cancelled && plans_.empty()) throw;
        if (e.code() == ErrorCode::device_lost) throw;
        notes_.push_back(cat(precision, " is left out: ", e.message()));
      }
    }
  }

  void keep_segments(runtime::Plan& best) {
    const size_t count = std::min(kSegments, contractions_.size() / kLeastContractions);
    std::set<std::string> full;
    for (size_t s = 0; count > 1 && s < count && !interrupted(); ++s) {
      const size_t begin = contractions_.size() * s / count, end = contractions_.size() * (s + 1) / count;
      std::set<std::string> trial = full;
      for (size_t i = begin; i < end; ++i) trial.insert(graph_[contractions_[i]].name);
      const std::string key =
          cat(key_, " ", names_used_, " segment ", s, " of ", count, " kept ", full.size());
      std::optional<runtime::Plan> other;
      const auto make = [&](size_t i) {
        if (i == 0) return best;
        other = compile_in(names_used_, trial);
        return *other;
      };
      if (tuner_.choose_form(key, {names_used_, "fp32"}, make) == 0) continue;
      full = std::move(trial);
      best = other ? std::move(*other) : compile_in(names_used_, full);
      notes_.push_back(cat("segment ", s + 1, " of ", count, ", from '", graph_[contractions_[begin]].name,
                           "' to '", graph_[contractions_[end - 1]].name, "', stays in f32: that is faster"));
    }
  }

  Graph graph_;
  const device::Target& target_;
  Options options_;
  const backend::Registry& registry_;
  const Measured& measured_;
  Tactics own_;
  Tuner tuner_;
  std::vector<NodeId> contractions_;
  std::string key_, names_used_;
  std::vector<runtime::Plan> plans_;
  std::vector<std::string> names_, notes_;
};

}  // namespace

bool is_choice_of_precisions(const std::string& precision) {
  return precision == "best" || precision.find(',') != precision.npos;
}

runtime::Plan compile_best(const Graph& graph, const device::Target& target, const Options& options,
                           const backend::Registry& registry, const Measured& measured) {
  if (target.kind == device::Kind::cuda && target.multiprocessors == 0)
    fail(ErrorCode::usage, cat("the fastest precision is found by timing, and ", target.name, " is not here"),
         "--precision", "name one, or compile on the machine with the GPU");
  return Search(graph, target, options, registry, measured).run();
}

}  // namespace pelton::compiler
