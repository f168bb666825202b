// SPDX-License-Identifier: Apache-2.0
#include "compiler/compile.h"

#include "base/clock.h"
#include "compiler/best.h"
#include "compiler/forms.h"
#include "compiler/measured.h"
#include "compiler/oracle.h"
#include "compiler/pipeline.h"
#include "compiler/ranges.h"
#include "compiler/tune.h"
#include "ir/verify.h"
#include "passes/absorb.h"
#include "passes/composites.h"
#include "passes/cse.h"
#include "passes/decompose.h"
#include "passes/fold.h"
#include "passes/fold_norm.h"
#include "passes/low_copies.h"
#include "passes/movement.h"
#include "passes/precision.h"
#include "passes/product_shape.h"
#include "passes/siblings.h"
#include "passes/simplify.h"
#include "passes/static_shape.h"
#include "passes/tie.h"
#include "passes/weight_names.h"

namespace pelton::compiler {

using ir::Graph;

// No CPU kernel multiplies in f16, and those in bf16 are of the library's code for AVX-512.
std::string slow_precision(const device::Target& target, std::string_view precision) {
  if (target.kind != device::Kind::cpu) return "";
  if (precision != "fp16" && (precision != "bf16" || target.isa >= device::CpuIsa::avx512)) return "";
  return cat("products in ", precision, " have no fast kernels on ", target.name, ": slower than in fp32");
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
  const std::set<std::string> weights = passes::weight_names(graph);

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

  p.run("tie", [&] { return passes::tie(graph, context); });
  p.print("tie");

  const auto compile_f32 = [&](Graph g) {
    Options plain;
    plain.disabled = options.disabled;
    plain.strict = options.strict;
    plain.finishes = options.finishes;
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
  if (std::string why = slow_precision(target, options.precision); !why.empty())
    quantize_notes.push_back(std::move(why));
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
  if (tuner) form = choose_form(graph, plan, options, registry, *tuner);
  finish(graph, form, p, context);
  passes::keep_names(graph, weights);

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
