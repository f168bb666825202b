// SPDX-License-Identifier: Apache-2.0
#include "cli/inspect_support.h"

#include <set>

#include "cli/command.h"
#include "cli/inputs.h"
#include "register/registry.h"
#include "runtime/implementations.h"

namespace pelton::cli {
namespace {

void add_rows(const ir::Graph& g, const std::vector<runtime::Choice>& choices, int depth,
              std::vector<SupportRow>& out) {
  for (size_t i = 0; i < choices.size(); ++i) {
    const runtime::Choice& c = choices[i];
    ir::NodeId id = g.order()[i];
    if (g[id].is("constant")) continue;
    std::string result = g[id].outputs.empty() ? "" : g.type(g[id].outputs[0]).str();
    out.push_back({g.describe(id), std::string(g.op(id).name), c.implementation, result, depth, c.refusals});
    for (const runtime::BodyChoices& body : c.bodies)
      add_rows(g[id].get_graph(body.attr), body.choices, depth + 1, out);
  }
}

void run_at(const runtime::Executable& executable, const std::map<std::string, std::string>& shapes,
            const std::map<std::string, int64_t>& optimum, std::vector<runtime::Choice>& choices) {
  const ir::Graph& g = executable.graph();
  for (ir::ValueId v : g.inputs)
    if (!g.type(v).is_tensor() || !g.type(v).ranked) return;
  std::set<std::string> open;
  for (ir::ValueId v : g.inputs)
    for (const Dim& d : g.type(v).shape) d.collect_symbols(open);
  for (const auto& [symbol, size] : optimum) open.erase(symbol);
  if (!open.empty() && shapes.empty()) return;
  const auto names = runtime::implementations_at(executable, registry(), choose_dims(g, shapes, 0, optimum));
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].implementation == names[i]) continue;
    choices[i].refusals.push_back({choices[i].implementation, "has no fast code at these sizes"});
    choices[i].implementation = names[i];
  }
}

}  // namespace

std::vector<SupportRow> support_rows(const runtime::Executable& executable,
                                     const std::map<std::string, std::string>& shapes,
                                     const std::map<std::string, int64_t>& optimum) {
  std::vector<runtime::Choice> choices = executable.choices();
  run_at(executable, shapes, optimum, choices);
  std::vector<SupportRow> rows;
  add_rows(executable.graph(), choices, 0, rows);
  return rows;
}

void print_support(const std::vector<SupportRow>& rows) {
  Table table({"node", "implementation", "result", "why not a faster one"});
  for (const SupportRow& r : rows) {
    std::string why;
    for (const runtime::Refusal& f : r.refusals)
      append(why, cat(why.empty() ? "" : "; ", f.implementation, ": ", f.reason));
    table.row({std::string(static_cast<size_t>(r.depth) * 2, ' ') + r.node,
               r.implementation == "none" ? "none (costs nothing)" : r.implementation, r.type, why});
  }
  table.print();
}

}  // namespace pelton::cli
