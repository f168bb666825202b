// SPDX-License-Identifier: Apache-2.0
#include "compiler/pipeline.h"

#include <algorithm>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace pelton::compiler {
namespace {

constexpr const char* kPasses[] = {"specialise", "absorb",    "fold",       "static_shape",  "simplify",
                                   "movement",   "cse",       "composites", "fold_norm",     "tie",
                                   "quantize",   "precision", "low_copies", "product_shape", "siblings",
                                   "decompose",  "layout",    "fusion",     "merge_updates", "dead_code"};

}  // namespace

Pipeline::Pipeline(ir::Graph& graph, const Options& options, runtime::Plan& plan)
    : graph_(graph), options_(options), plan_(plan) {
  for (const std::set<std::string>* names : {&options.disabled, &options.print_after})
    for (const std::string& n : *names)
      if (n != "import" && std::find(std::begin(kPasses), std::end(kPasses), n) == std::end(kPasses)) {
        std::string all;
        for (const char* p : kPasses) append(all, cat(all.empty() ? "" : ", ", p));
        fail(ErrorCode::usage, cat("there is no pass '", n, "'"), "", cat("the passes are ", all));
      }
}

bool Pipeline::run(const char* name, FunctionRef<bool()> pass) {
  if (!options_.finishes) throw_if_interrupted();
  if (options_.disabled.count(name)) return false;
  Stopwatch watch;
  bool changed = with_place(cat("pass ", name), [&] { return pass(); });
  double seconds = watch.seconds();
  auto report =
      std::find_if(plan_.passes.begin(), plan_.passes.end(), [&](const auto& r) { return r.name == name; });
  if (report == plan_.passes.end()) report = plan_.passes.insert(plan_.passes.end(), {name, 0, 0, {}});
  report->changes += changed;
  report->seconds += seconds;
  if (changed) log_debug(cat("pass ", name, ": ", graph_.node_count(), " nodes, ", seconds * 1e3, " ms"));
  if (options_.verify_each && changed) ir::verify(graph_, cat("pass ", name));
  return changed;
}

void Pipeline::print(const char* name) const {
  if (options_.print && options_.print_after.count(name))
    options_.print(name, ir::print(graph_, {.max_elements = 16}));
}

std::vector<std::string> pass_names() {
  return {std::begin(kPasses), std::end(kPasses)};
}

}  // namespace pelton::compiler
