// SPDX-License-Identifier: Apache-2.0
// pelton inspect: what a model or plan is made of, and which implementation takes each node.
#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/inspect_support.h"
#include "cli/inspect_totals.h"
#include "cli/preprocess.h"
#include "cli/run_model.h"
#include "compiler/timing.h"
#include "ir/op.h"
#include "ir/text.h"
#include "passes/specialise.h"
#include "register/registry.h"
#include "runtime/executable.h"

namespace pelton::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string model, precision = "fp32";
  std::vector<std::string> shapes;
  bool graph = false, support = false;
};

json value_list(const ir::Graph& g, const std::vector<ir::ValueId>& values, bool outputs) {
  json out = json::array();
  for (size_t i = 0; i < values.size(); ++i) {
    const ir::Type& t = g.type(values[i]);
    json dims = json::array();
    for (const Dim& d : t.shape) dims.push_back(d.is_const() ? json(d.value()) : json(d.str()));
    out.push_back({{"name", outputs ? g.output_name(i) : g[values[i]].name},
                   {"type", t.str()},
                   {"dtype", t.is_tensor() ? std::string(name(t.dtype)) : std::string()},
                   {"shape", dims}});
  }
  return out;
}

// What is looked at: a plan, or a model that was not compiled.
struct Subject {
  std::shared_ptr<const runtime::Plan> plan;
  bool from_file = false;  // the plan, in place of having been compiled here
  std::unique_ptr<Model> model;
  std::map<std::string, int64_t> optimum;
  std::shared_ptr<const runtime::Preprocess> preprocess;
  const ir::Graph& graph() const { return plan ? plan->graph : model->graph; }
};

Subject open_subject(const Options& o, const device::Target& target) {
  Subject s;
  const CompileOptions options = compile_options(o.shapes, o.precision);
  s.from_file = is_plan_file(o.model);
  if (s.from_file || o.support) {
    s.plan = plan_of(o.model, target, options);
    s.optimum = s.plan->optimum;
  } else {
    s.model = std::make_unique<Model>(model_of(o.model, options));
    passes::InputShapes shapes;
    for (const auto& [name, text] : options.shapes) shapes[name] = passes::parse_shape(text);
    if (!shapes.empty()) passes::specialise(s.model->graph, shapes, &s.optimum, {.target = target});
  }
  s.preprocess = find_preprocess(o.model);
  return s;
}

// What arithmetic is counted at: the sizes given, else the plan's own.
SymbolValues sizes_of(const Subject& s, const Options& o) {
  const ir::Graph& g = s.graph();
  SymbolValues sizes = compiler::sizes_of(g, s.optimum);
  const auto shapes = pairs(o.shapes, "--shape");
  if (!s.plan || shapes.empty()) return sizes;
  const std::vector<Dims> given = choose_dims(g, shapes, 0, s.optimum);
  for (size_t i = 0; i < given.size(); ++i)
    for (size_t d = 0; d < given[i].size(); ++d)
      if (auto symbol = g.type(g.inputs[i]).shape[d].as_symbol()) sizes[*symbol] = given[i][d];
  return sizes;
}

json facts(const Subject& s, const Options& o, const Totals& t, const SymbolValues& sizes) {
  const ir::Graph& g = s.graph();
  json out = {{"model", o.model},
              {"format", s.model       ? s.model->format
                         : s.from_file ? "pelton"
                                       : "compiled"},
              {"inputs", value_list(g, g.inputs, false)},
              {"outputs", value_list(g, g.outputs, true)},
              {"nodes", t.nodes},
              {"ops", t.ops},
              {"parameters", t.parameters},
              {"parameter_bytes", t.parameter_bytes},
              {"flops", t.flops},
              {"counted_at", sizes},
              {"activation_bytes", t.bytes}};
  if (s.model) {
    out["opsets"] = s.model->opsets;
    if (!s.model->producer.empty()) out["producer"] = s.model->producer;
  }
  if (!s.plan) return out;
  out["precision"] = s.plan->precision;
  out["target"] = s.plan->target.name;
  if (s.from_file) out["source"] = s.plan->source;
  if (const auto& p = s.preprocess)
    out["preprocess"] = {{"name", p->name},
                         {"input", p->input},
                         {"pipeline", p->pipeline},
                         {"makes", p->plan->graph.type(p->plan->graph.outputs.at(0)).str()}};
  json guards = json::array();
  for (const ir::Fact& f : g.guards) guards.push_back(f.str());
  out["guards"] = guards;
  return out;
}

json support_json(const std::vector<SupportRow>& rows) {
  json out = json::array();
  for (const SupportRow& r : rows) {
    json refusals = json::array();
    for (const auto& f : r.refusals)
      refusals.push_back({{"implementation", f.implementation}, {"reason", f.reason}});
    out.push_back({{"node", r.node},
                   {"op", r.op},
                   {"implementation", r.implementation},
                   {"type", r.type},
                   {"depth", r.depth},
                   {"refusals", refusals}});
  }
  return out;
}

void print_values(const ir::Graph& g, bool outputs) {
  const std::vector<ir::ValueId>& values = outputs ? g.outputs : g.inputs;
  for (size_t i = 0; i < values.size(); ++i)
    print_line(cat(outputs ? "output  " : "input   ", outputs ? g.output_name(i) : g[values[i]].name, "  ",
                   g.type(values[i]).str()));
}

void print_facts(const Subject& s, const Totals& t, const SymbolValues& sizes) {
  const ir::Graph& g = s.graph();
  print_values(g, false);
  print_values(g, true);
  if (s.preprocess) {
    print_line(cat("pictures  make '", s.preprocess->input, "' by ", s.preprocess->name, ":"));
    for (std::string_view rest = s.preprocess->pipeline; !rest.empty();) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      print_line(cat("    ", rest.substr(0, end)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  for (const auto& [symbol, range] : g.symbols->ranges)
    if (symbol[0] != 'u' || !std::isdigit(static_cast<unsigned char>(symbol[1])))
      print_line(cat("size    ", symbol, " from ", range.min,
                     range.max == INT64_MAX ? std::string(" on") : cat(" to ", range.max)));
  print_line(
      cat("parameters  ", t.parameters, " (", bytes_text(static_cast<double>(t.parameter_bytes)), ")"));
  print_line(cat("arithmetic  ", fixed(t.flops * 1e-9, 3), " GFLOP", counted_at(g, sizes),
                 t.unsized.empty() ? std::string() : cat(", not all counted: ", t.unsized)));
  print_line(cat("results     ", bytes_text(t.bytes), " written by nodes"));
  for (const auto& [domain, v] : s.model ? s.model->opsets : std::map<std::string, int64_t>{})
    print_line(cat("opset       ", domain.empty() ? "ai.onnx" : domain, " ", v));
  if (s.plan) print_line(cat("plan        ", s.plan->precision, ", compiled for ", s.plan->target.name));
  print_line(cat("nodes       ", t.nodes));
  Table table({"op", "count"}, {false, true});
  for (const auto& [op, n] : t.ops) table.row({op, cat(n)});
  table.print();
}

int run(const Options& o, const Globals& globals) {
  const device::Target target = globals.target();
  const Subject s = open_subject(o, target);
  const ir::Graph& g = s.graph();
  if (o.graph && !globals.json) {
    if (s.preprocess) print_line(ir::print(s.preprocess->plan->graph, {.max_elements = 16}));
    print_line(ir::print(g, {.max_elements = 16}));
    return 0;
  }
  const SymbolValues sizes = sizes_of(s, o);
  const Totals t = totals(g, sizes);
  std::vector<SupportRow> support;
  std::vector<std::string> notes;
  if (o.support) {
    const auto executable = runtime::Executable::create(s.plan, registry(), target);
    support = support_rows(*executable, pairs(o.shapes, "--shape"), s.optimum);
    notes = executable->notes();
  }
  if (globals.json) {
    json out = facts(s, o, t, sizes);
    if (o.support) {
      out["support"] = support_json(support);
      out["notes"] = notes;
    }
    if (o.graph) out["graph"] = ir::print(g, {.max_elements = 16});
    print_json(out);
  } else if (o.support) {
    print_support(support);
    for (const std::string& n : notes) print_line(cat("note: ", n));
  } else {
    print_facts(s, t, sizes);
  }
  return 0;
}

}  // namespace

Run make_inspect(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<Options>();
  app.add_option("model", o->model, "model or plan")->required()->type_name("MODEL");
  app.add_flag("--graph", o->graph, "print the graph in its text form");
  CLI::Option* support = app.add_flag("--support", o->support,
                                      "for each node which implementation takes it and why not a faster one");
  app.add_option("--shape", o->shapes, "shape of an input; a size that may vary is min:opt:max")
      ->type_name("NAME=AxBxC")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--precision", o->precision, "that --support compiles a model in")
      ->needs(support)
      ->capture_default_str();
  return [o, &globals] { return run(*o, globals); };
}

}  // namespace pelton::cli
