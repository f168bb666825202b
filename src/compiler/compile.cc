// SPDX-License-Identifier: Apache-2.0
#include "compiler/compile.h"

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "compiler/oracle.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/composites.h"
#include "passes/cse.h"
#include "passes/decompose.h"
#include "passes/fold.h"
#include "passes/fold_norm.h"
#include "passes/fusion.h"
#include "passes/layout.h"
#include "passes/movement.h"
#include "passes/precision.h"
#include "passes/product_shape.h"
#include "passes/rewrite.h"
#include "passes/siblings.h"
#include "passes/simplify.h"
#include "passes/static_shape.h"

namespace pelton::compiler {

using ir::Graph;

namespace {

constexpr const char* kPasses[] = {"specialise", "fold",       "static_shape", "simplify",  "movement",
                                   "cse",        "composites", "fold_norm",    "precision", "product_shape",
                                   "siblings",   "decompose",  "layout",       "fusion",    "dead_code"};

class Pipeline {
 public:
  Pipeline(Graph& graph, const Options& options, runtime::Plan& plan)
      : graph_(graph), options_(options), plan_(plan) {
    for (const std::set<std::string>* names : {&options.disabled, &options.print_after})
      for (const std::string& n : *names)
        if (n != "import" && std::find(std::begin(kPasses), std::end(kPasses), n) == std::end(kPasses)) {
          std::string all;
          for (const char* p : kPasses) append(all, cat(all.empty() ? "" : ", ", p));
          fail(ErrorCode::usage, cat("there is no pass '", n, "'"), "", cat("the passes are ", all));
        }
  }

  // Runs a pass unless it is switched off; times, logs, prints and verifies it.
  template <class F>
  bool run(const char* name, F&& pass) {
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
  void print(const char* name) {
    if (options_.print && options_.print_after.count(name))
      options_.print(name, ir::print(graph_, {.max_elements = 16}));
  }

 private:
  Graph& graph_;
  const Options& options_;
  runtime::Plan& plan_;
};

}  // namespace

std::vector<std::string> pass_names() {
  return {std::begin(kPasses), std::end(kPasses)};
}

runtime::Plan compile(Graph graph, const device::Target& target, const Options& options,
                      const backend::Registry& registry) {
  Stopwatch watch;
  runtime::Plan plan;
  plan.target = target;
  plan.precision = options.precision;
  RegistryOracle oracle(registry, target);
  passes::Context context{target, &oracle, options.fired};
  context.target.tf32 = options.precision == "tf32";
  Pipeline p(graph, options, plan);

  ir::verify(graph, "import");
  p.print("import");

  p.run("specialise", [&] { return passes::specialise(graph, options.shapes, &plan.optimum, context); });
  p.print("specialise");

  // Clean-up passes feed one another: until nothing changes, bounded.
  auto clean_up = [&] {
    for (int round = 0; round < 8; ++round) {
      bool changed = p.run("fold", [&] { return passes::fold(graph, context); });
      changed |= p.run("static_shape", [&] { return passes::static_shape(graph, context); });
      changed |= p.run("simplify", [&] { return passes::simplify(graph, context); });
      changed |= p.run("movement", [&] { return passes::movement(graph, context); });
      changed |= p.run("cse", [&] { return passes::cse(graph, context); });
      if (!changed) break;
    }
  };
  clean_up();
  for (const char* name : {"fold", "static_shape", "simplify", "movement", "cse"}) p.print(name);

  // Composites are found before anything splits or merges their parts.
  if (p.run("composites", [&] { return passes::composites(graph, context); })) clean_up();
  p.print("composites");

  // Frozen weights only: parameters are constants here.
  if (p.run("fold_norm", [&] { return passes::fold_norm(graph, context); })) clean_up();
  p.print("fold_norm");

  if (p.run("precision",
            [&] { return passes::precision(graph, options.precision, context, options.full_precision); }))
    clean_up();
  p.print("precision");

  if (p.run("product_shape", [&] { return passes::product_shape(graph, context); })) clean_up();
  p.print("product_shape");

  if (p.run("siblings", [&] { return passes::siblings(graph, context); })) clean_up();
  p.print("siblings");

  // What no implementation keeps whole is split, so that fusion sees its parts.
  if (p.run("decompose", [&] { return passes::decompose(graph, context); })) clean_up();
  p.print("decompose");

  p.run("layout", [&] { return passes::layout(graph, context); });
  p.print("layout");

  p.run("fusion", [&] { return passes::fusion(graph, context); });
  p.print("fusion");

  p.run("dead_code", [&] { return passes::remove_dead(graph); });
  graph.sort();
  graph.compact();
  ir::verify(graph, "compilation");
  p.print("dead_code");

  plan.graph = std::move(graph);
  plan.choices = runtime::choose_all(plan.graph, registry, target);
  plan.compile_seconds = watch.seconds();
  return plan;
}

}  // namespace pelton::compiler
