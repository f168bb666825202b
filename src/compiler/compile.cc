// SPDX-License-Identifier: Apache-2.0
#include "compiler/compile.h"

#include <algorithm>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "compiler/best.h"
#include "compiler/measured.h"
#include "compiler/oracle.h"
#include "compiler/ranges.h"
#include "compiler/tune.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/absorb.h"
#include "passes/composites.h"
#include "passes/cse.h"
#include "passes/decompose.h"
#include "passes/fold.h"
#include "passes/fold_norm.h"
#include "passes/fusion.h"
#include "passes/layout.h"
#include "passes/low_copies.h"
#include "passes/merge_updates.h"
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

constexpr const char* kPasses[] = {"specialise", "absorb",     "fold",          "static_shape", "simplify",
                                   "movement",   "cse",        "composites",    "fold_norm",    "quantize",
                                   "precision",  "low_copies", "product_shape", "siblings",     "decompose",
                                   "layout",     "fusion",     "merge_updates", "dead_code"};

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

// What may be done one way or another, depending on which is faster on the machine.
struct Form {
  std::string name = "nhwc";
  ir::Layout layout{ir::Layout::Kind::channels_last, 0};
  bool merge = false;                 // sibling contractions
  std::vector<ir::Layout> by_anchor;  // of each convolution; empty: `layout` for all
};

bool is_lower(const std::string& precision) {
  return precision == "bf16" || precision == "fp16";
}

// From passes that hold for every machine to the graph that runs.
void finish(Graph& graph, const Form& form, Pipeline& p, const passes::Context& context) {
  if (form.merge) p.run("siblings", [&] { return passes::siblings(graph, context); });

  p.run("layout", [&] { return passes::layout(graph, context, form.layout, form.by_anchor); });
  p.print("layout");

  p.run("fusion", [&] { return passes::fusion(graph, context); });
  p.print("fusion");

  if (context.target.kind == device::Kind::cuda)
    p.run("merge_updates", [&] { return passes::merge_updates(graph, context); });
  p.print("merge_updates");

  p.run("dead_code", [&] { return passes::remove_dead(graph); });
  graph.sort();
  graph.compact();
  ir::verify(graph, "compilation");
  p.print("dead_code");
}

// Forms of the graph that differ and are worth timing; the first is what runs without a measurement.
std::vector<Form> forms_of(const Graph& graph, const device::Target& target) {
  std::vector<Form> forms(1);
  if (target.kind != device::Kind::cpu) return forms;
  bool images = false;
  for (ir::NodeId id : graph.order())
    images |= graph[id].is("conv") && graph.type(graph[id].outputs[0]).rank() >= 4;
  if (images) {
    const bool wide = target.isa >= device::CpuIsa::avx512;
    forms.push_back({"plain", {}, false});
    forms.push_back({"blocked", {ir::Layout::Kind::blocked, static_cast<uint8_t>(wide ? 16 : 8)}, false});
  }
  Graph trial = graph;
  if (passes::siblings(trial, {target, nullptr, nullptr}))
    forms.push_back({"merged", {ir::Layout::Kind::channels_last, 0}, true});
  return forms;
}

class FormChooser {
 public:
  FormChooser(const Graph& graph, const runtime::Plan& so_far, const Options& options,
              const backend::Registry& registry, Tuner& tuner)
      : graph_(graph), so_far_(so_far), options_(options), registry_(registry), tuner_(tuner) {
    std::string sizes;
    for (const auto& [symbol, size] : so_far.optimum) append(sizes, cat(" ", symbol, "=", size));
    key_ = cat("plan ", graph.name, " #",
               checksum(ir::print(graph, {.max_elements = 2, .names = false})).str().substr(0, 16), sizes);
    options_.print_after.clear();
    options_.fired = nullptr;
  }

  Form run() {
    const std::vector<Form> forms = forms_of(graph_, so_far_.target);
    if (forms.size() < 2) return forms[0];
    Form best = forms[fastest(key_, forms)];
    return by_region(std::move(best), forms);
  }

 private:
  // The network's convolutions in up to four runs, each of which may be better off in another layout than the
  // whole, whatever the conversions between them cost.
  Form by_region(Form best, const std::vector<Form>& forms) {
    constexpr size_t kRegions = 4, kLeastAnchors = 2;
    RegistryOracle oracle(registry_, so_far_.target);
    const size_t anchors = passes::count_layout_anchors(
        graph_, {so_far_.target, &oracle, nullptr, is_lower(so_far_.precision), options_.strict});
    const size_t regions = std::min(kRegions, anchors / kLeastAnchors);
    if (regions < 2) return best;
    std::vector<std::string> names(regions, best.name);
    best.by_anchor.assign(anchors, best.layout);
    for (size_t r = 0; r < regions && !tuner_.spent(); ++r) {
      std::vector<Form> ways{best};
      std::vector<std::string> layouts{names[r]};
      for (const Form& f : forms) {
        if (f.layout == best.layout) continue;
        Form way = best;
        for (size_t a = r * anchors / regions; a < (r + 1) * anchors / regions; ++a)
          way.by_anchor[a] = f.layout;
        layouts.push_back(f.name);
        names[r] = f.name;
        way.name = joined(names);
        ways.push_back(std::move(way));
      }
      const size_t chosen = fastest(cat(key_, " region ", r + 1, " of ", regions, " in ", best.name), ways);
      names[r] = layouts[chosen];
      best = ways[chosen];
    }
    return best;
  }
  static std::string joined(const std::vector<std::string>& names) {
    std::string out;
    for (const std::string& n : names) append(out, cat(out.empty() ? "" : "+", n));
    return out;
  }

  size_t fastest(const std::string& key, const std::vector<Form>& forms) {
    std::vector<std::string> names;
    for (const Form& f : forms) names.push_back(f.name);
    return tuner_.choose_form(key, names, [&](size_t i) {
      Graph copy = graph_;
      runtime::Plan plan;
      plan.target = so_far_.target;
      plan.optimum = so_far_.optimum;
      plan.precision = so_far_.precision;
      RegistryOracle oracle(registry_, so_far_.target);
      passes::Context context{so_far_.target, &oracle, nullptr, is_lower(so_far_.precision), options_.strict};
      Pipeline p(copy, options_, plan);
      finish(copy, forms[i], p, context);
      plan.graph = std::move(copy);
      plan.choices = runtime::choose_all(plan.graph, registry_, so_far_.target);
      return plan;
    });
  }

  const Graph& graph_;
  const runtime::Plan& so_far_;
  Options options_;
  const backend::Registry& registry_;
  Tuner& tuner_;
  std::string key_;
};

}  // namespace

std::vector<std::string> pass_names() {
  return {std::begin(kPasses), std::end(kPasses)};
}

runtime::Plan compile(Graph graph, const device::Target& target, const Options& options,
                      const backend::Registry& registry) {
  return compile(std::move(graph), target, options, registry, {});
}

runtime::Plan compile(Graph graph, const device::Target& target, const Options& options,
                      const backend::Registry& registry, const Measured& measured) {
  if (is_choice_of_precisions(options.precision))
    return compile_best(graph, target, options, registry, measured);
  Stopwatch watch;
  runtime::Plan plan;
  plan.target = target;
  plan.precision = options.precision;
  RegistryOracle oracle(registry, target);
  passes::Context context{target, &oracle, options.fired, is_lower(options.precision), options.strict};
  context.target.tf32 = options.precision == "tf32";
  Pipeline p(graph, options, plan);

  ir::verify(graph, "import");
  p.print("import");

  p.run("specialise", [&] { return passes::specialise(graph, options.shapes, &plan.optimum, context); });
  p.print("specialise");

  // Before constants are folded: quantised weights stay integers where a contraction takes them so.
  p.run("absorb", [&] { return passes::absorb(graph, context); });
  p.print("absorb");

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

  const auto compile_f32 = [&](Graph g) {
    Options plain;
    plain.disabled = options.disabled;
    plain.strict = options.strict;
    // Samples run on the target, or on this machine's CPU where the target is not here.
    const bool absent = target.kind == device::Kind::cuda && target.multiprocessors == 0;
    return compile(std::move(g), absent ? device::host_of(target) : target, plain, registry);
  };
  const bool int8 = options.precision == "int8";
  const bool checks_drop = !int8 && options.precision != "fp32" && measured.quantize.max_drop >= 0;
  std::vector<std::vector<Tensor>> reference;
  if (checks_drop && measured.quantize.samples.empty())
    fail(ErrorCode::usage, "a drop can only be measured on samples", "--max-drop",
         "name a folder of them with --calibrate");
  if (checks_drop)
    reference = run_samples(compile_f32(graph), measured.quantize.samples, registry, "running in f32");
  std::vector<std::string> quantize_notes;
  if (int8) {
    p.run("quantize", [&] {
      quantize_graph(graph, measured.quantize, context, registry, compile_f32, quantize_notes);
      return true;
    });
    clean_up();
  }
  p.print("quantize");

  std::set<std::string> full = options.full_precision;
  if (options.precision == "fp16" && !measured.quantize.samples.empty())
    full.merge(out_of_f16(graph, measured.quantize.samples, registry, compile_f32, quantize_notes));
  if (!int8 && p.run("precision", [&] { return passes::precision(graph, options.precision, context, full); }))
    clean_up();
  p.print("precision");

  // Training steps: whoever updates a parameter writes its lower form as well.
  if (target.kind == device::Kind::cuda &&
      p.run("low_copies", [&] { return passes::keep_low_copies(graph); }))
    clean_up();
  p.print("low_copies");

  if (p.run("product_shape", [&] { return passes::product_shape(graph, context); })) clean_up();
  p.print("product_shape");

  // A GPU gains from every launch that is saved; on a CPU the slices cost what the wider product gains, so
  // there it is a matter of measurement.
  if (target.kind == device::Kind::cuda &&
      p.run("siblings", [&] { return passes::siblings(graph, context); }))
    clean_up();
  p.print("siblings");

  // What no implementation keeps whole is split, so that fusion sees its parts.
  if (p.run("decompose", [&] { return passes::decompose(graph, context); })) clean_up();
  p.print("decompose");

  std::unique_ptr<Tuner> tuner;
  if (measured.tactics && target.kind == device::Kind::cpu)
    tuner = std::make_unique<Tuner>(*measured.tactics, measured.time_budget_seconds, registry, target);
  Form form;
  if (tuner) form = FormChooser(graph, plan, options, registry, *tuner).run();
  finish(graph, form, p, context);

  plan.graph = std::move(graph);
  plan.choices = runtime::choose_all(plan.graph, registry, target);
  if (tuner) {
    tuner->choose_nodes(plan.graph, plan.optimum, plan.choices);
    plan.passes.push_back({"tactics", 0, 0, tuner->notes()});
  }
  if (checks_drop) {
    const auto results =
        run_samples(plan, measured.quantize.samples, registry, cat("running in ", plan.precision));
    const double drop = drop_percent(reference, results);
    if (drop > measured.quantize.max_drop)
      fail(ErrorCode::numeric,
           cat("in ", plan.precision, " the result loses ", drop, "%, more than ", measured.quantize.max_drop,
               "%"),
           "--max-drop", "allow more, or use --precision fp32");
    quantize_notes.push_back(cat("drop ", drop, "% on ", measured.quantize.samples.size(), " samples"));
  }
  for (runtime::PassReport& r : plan.passes)
    if (r.name == (int8 ? "quantize" : "precision")) r.notes = quantize_notes;
  plan.compile_seconds = watch.seconds();
  return plan;
}

}  // namespace pelton::compiler
