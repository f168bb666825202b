// SPDX-License-Identifier: Apache-2.0
#include "compiler/forms.h"

#include <algorithm>

#include "base/hash.h"
#include "compiler/oracle.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/fusion.h"
#include "passes/layout.h"
#include "passes/merge_updates.h"
#include "passes/rewrite.h"
#include "passes/siblings.h"

namespace pelton::compiler {

using ir::Graph;

namespace {

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

bool is_lower(const std::string& precision) {
  return precision == "bf16" || precision == "fp16";
}

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

Form choose_form(const Graph& graph, const runtime::Plan& so_far, const Options& options,
                 const backend::Registry& registry, Tuner& tuner) {
  return FormChooser(graph, so_far, options, registry, tuner).run();
}

}  // namespace pelton::compiler
