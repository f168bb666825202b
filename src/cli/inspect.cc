// SPDX-License-Identifier: Apache-2.0
// pelton inspect: what a model or plan is made of, and which implementation takes each node.
#include <CLI/CLI.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/preprocess.h"
#include "cli/run_model.h"
#include "compiler/timing.h"
#include "ir/op.h"
#include "ir/text.h"
#include "passes/specialise.h"
#include "register/registry.h"
#include "runtime/executable.h"
#include "runtime/implementations.h"

namespace pelton::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string model, precision = "fp32";
  std::vector<std::string> shapes;
  bool graph = false, support = false;
};

struct Totals {
  std::map<std::string, int64_t> ops;
  int64_t parameters = 0, parameter_bytes = 0, nodes = 0;
  double flops = 0, bytes = 0;
  std::string unsized;  // a symbol that keeps flops from being counted
};

// " at N=1, L=8": what was counted at, where inputs have open sizes.
std::string counted_at(const ir::Graph& g, const SymbolValues& sizes) {
  std::set<std::string> open;
  for (ir::ValueId v : g.inputs)
    for (const Dim& d : g.type(v).shape) d.collect_symbols(open);
  std::string text;
  for (const std::string& symbol : open)
    append(text, cat(text.empty() ? " at " : ", ", symbol, "=", sizes.at(symbol)));
  return text;
}

// What a node computes and writes.
void add_work(const ir::Graph& g, const ir::Node& n, const SymbolValues& sizes, Totals& t) {
  std::vector<Dims> in, out;
  try {
    for (ir::ValueId v : n.inputs) in.push_back(v ? eval(g.type(v).shape, sizes) : Dims{});
    for (ir::ValueId v : n.outputs) {
      out.push_back(eval(g.type(v).shape, sizes));
      if (g.type(v).is_tensor() && g.type(v).dtype != DType::string)
        t.bytes += static_cast<double>(ir::physical_bytes(g.type(v), out.back()));
    }
    if (n.op->flops) t.flops += n.op->flops(g, n, in, out);
  } catch (const Error& e) {
    t.unsized = e.message();
  }
}

// Nodes within a fused one (`fused`) are counted as ops only: its own row has their arithmetic, and what they
// hand to each other is not written.
void count(const ir::Graph& g, const SymbolValues& sizes, bool fused, Totals& t) {
  for (ir::NodeId id : g.order()) {
    const ir::Node& n = g[id];
    if (n.is("constant")) {
      const Tensor& value = n.get_tensor("value");
      t.parameters += value.count();
      if (value.dtype() != DType::string) t.parameter_bytes += value.bytes();
      continue;
    }
    ++t.nodes;
    ++t.ops[std::string(n.op->name)];
    if (!fused) add_work(g, n, sizes, t);
    for (const auto& [key, value] : n.attrs)
      if (auto body = std::get_if<ir::GraphPtr>(&value)) count(**body, sizes, fused || n.is("fused"), t);
  }
}

void support_rows(const ir::Graph& g, const std::vector<runtime::Choice>& choices, int depth, json& out) {
  for (size_t i = 0; i < choices.size(); ++i) {
    const runtime::Choice& c = choices[i];
    ir::NodeId id = g.order()[i];
    if (g[id].is("constant")) continue;
    json refusals = json::array();
    for (const auto& r : c.refusals)
      refusals.push_back({{"implementation", r.implementation}, {"reason", r.reason}});
    std::string result = g[id].outputs.empty() ? "" : g.type(g[id].outputs[0]).str();
    out.push_back({{"node", g.describe(id)},
                   {"op", std::string(g.op(id).name)},
                   {"implementation", c.implementation},
                   {"type", result},
                   {"depth", depth},
                   {"refusals", refusals}});
    for (const runtime::BodyChoices& body : c.bodies)
      support_rows(g[id].get_graph(body.attr), body.choices, depth + 1, out);
  }
}

// Kernels are prepared at the sizes of the inputs, where they are known (fixed, by --shape or the optimum):
// one that hands its node on there is replaced by what takes it.
void run_at(const runtime::Executable& executable, const Options& o,
            const std::map<std::string, int64_t>& optimum, std::vector<runtime::Choice>& choices) {
  const ir::Graph& g = executable.graph();
  for (ir::ValueId v : g.inputs)
    if (!g.type(v).is_tensor() || !g.type(v).ranked) return;
  std::set<std::string> open;
  for (ir::ValueId v : g.inputs)
    for (const Dim& d : g.type(v).shape) d.collect_symbols(open);
  for (const auto& [symbol, size] : optimum) open.erase(symbol);
  if (!open.empty() && o.shapes.empty()) return;
  const auto names = runtime::implementations_at(executable, registry(),
                                                 choose_dims(g, pairs(o.shapes, "--shape"), 0, optimum));
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].implementation == names[i]) continue;
    choices[i].refusals.push_back({choices[i].implementation, "has no fast code at these sizes"});
    choices[i].implementation = names[i];
  }
}

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

void print_support(const json& rows) {
  Table table({"node", "implementation", "result", "why not a faster one"});
  for (const json& r : rows) {
    std::string why;
    for (const json& f : r["refusals"])
      append(why, cat(why.empty() ? "" : "; ", f["implementation"].get<std::string>(), ": ",
                      f["reason"].get<std::string>()));
    std::string indent(static_cast<size_t>(r["depth"].get<int>()) * 2, ' ');
    std::string implementation = r["implementation"].get<std::string>();
    table.row({indent + r["node"].get<std::string>(),
               implementation == "none" ? "none (costs nothing)" : implementation,
               r["type"].get<std::string>(), why});
  }
  table.print();
}

int run(const Options& o, const Globals& globals) {
  CompileOptions options = compile_options(o.shapes, o.precision);
  bool is_plan = is_plan_file(o.model);
  std::shared_ptr<const runtime::Plan> plan;
  std::unique_ptr<Model> model;
  std::map<std::string, int64_t> optimum;
  device::Target target = globals.target();
  if (is_plan || o.support) plan = plan_of(o.model, target, options);
  if (!is_plan && !o.support) {
    model = std::make_unique<Model>(model_of(o.model, options));
    passes::InputShapes shapes;
    for (const auto& [name, text] : options.shapes) shapes[name] = passes::parse_shape(text);
    if (!shapes.empty()) passes::specialise(model->graph, shapes, &optimum, {.target = target});
  }
  if (plan) optimum = plan->optimum;
  const auto preprocess = find_preprocess(o.model);
  const ir::Graph& g = plan ? plan->graph : model->graph;
  if (o.graph && !globals.json) {
    if (preprocess) print_line(ir::print(preprocess->plan->graph, {.max_elements = 16}));
    print_line(ir::print(g, {.max_elements = 16}));
    return 0;
  }
  Totals t;
  SymbolValues sizes = compiler::sizes_of(g, optimum);
  if (plan && !options.shapes.empty()) {
    const std::vector<Dims> given = choose_dims(g, options.shapes, 0, optimum);
    for (size_t i = 0; i < given.size(); ++i)
      for (size_t d = 0; d < given[i].size(); ++d)
        if (auto symbol = g.type(g.inputs[i]).shape[d].as_symbol()) sizes[*symbol] = given[i][d];
  }
  count(g, sizes, false, t);
  json out = {{"model", o.model},
              {"format", plan ? (is_plan ? "pelton" : "compiled") : model->format},
              {"inputs", value_list(g, g.inputs, false)},
              {"outputs", value_list(g, g.outputs, true)},
              {"nodes", t.nodes},
              {"ops", t.ops},
              {"parameters", t.parameters},
              {"parameter_bytes", t.parameter_bytes},
              {"flops", t.flops},
              {"counted_at", sizes},
              {"activation_bytes", t.bytes}};
  if (model) {
    out["opsets"] = model->opsets;
    if (!model->producer.empty()) out["producer"] = model->producer;
  }
  if (plan) {
    out["precision"] = plan->precision;
    out["target"] = plan->target.name;
    if (is_plan) out["source"] = plan->source;
    if (preprocess)
      out["preprocess"] = {
          {"name", preprocess->name},
          {"input", preprocess->input},
          {"pipeline", preprocess->pipeline},
          {"makes", preprocess->plan->graph.type(preprocess->plan->graph.outputs.at(0)).str()}};
    json guards = json::array();
    for (const ir::Fact& f : g.guards) guards.push_back(f.str());
    out["guards"] = guards;
  }
  json support = json::array();
  if (o.support) {
    auto executable = runtime::Executable::create(plan, registry(), target);
    std::vector<runtime::Choice> choices = executable->choices();
    run_at(*executable, o, optimum, choices);
    support_rows(g, choices, 0, support);
    out["support"] = support;
    out["notes"] = executable->notes();
  }
  if (globals.json) {
    if (o.graph) out["graph"] = ir::print(g, {.max_elements = 16});
    print_line(out.dump(-1, ' ', false, json::error_handler_t::replace));
    return 0;
  }
  if (o.support) {
    print_support(support);
    for (const json& n : out["notes"]) print_line(cat("note: ", n.get<std::string>()));
    return 0;
  }
  for (const char* side : {"inputs", "outputs"})
    for (const json& v : out[side])
      print_line(cat(side == std::string("inputs") ? "input   " : "output  ", v["name"].get<std::string>(),
                     "  ", v["type"].get<std::string>()));
  if (preprocess) {
    print_line(cat("pictures  make '", preprocess->input, "' by ", preprocess->name, ":"));
    for (std::string_view rest = preprocess->pipeline; !rest.empty();) {
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
  for (const auto& [domain, v] : model ? model->opsets : std::map<std::string, int64_t>{})
    print_line(cat("opset       ", domain.empty() ? "ai.onnx" : domain, " ", v));
  if (plan) print_line(cat("plan        ", plan->precision, ", compiled for ", plan->target.name));
  print_line(cat("nodes       ", t.nodes));
  Table table({"op", "count"}, {false, true});
  for (const auto& [op, n] : t.ops) table.row({op, cat(n)});
  table.print();
  return 0;
}

}  // namespace

Run make_inspect(CLI::App& app, const Globals& globals) {
  auto o = std::make_shared<Options>();
  app.add_option("model", o->model, "model or plan")->required()->type_name("MODEL");
  app.add_flag("--graph", o->graph, "print the graph in its text form");
  app.add_flag("--support", o->support,
               "for each node which implementation takes it and why not a faster one");
  app.add_option("--shape", o->shapes, "shape of an input; a size that may vary is min:opt:max")
      ->type_name("NAME=AxBxC")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--precision", o->precision, "with --support")->capture_default_str();
  return [o, &globals] { return run(*o, globals); };
}

}  // namespace pelton::cli
