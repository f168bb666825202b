// SPDX-License-Identifier: Apache-2.0
#include "runtime/manifest.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/json_number.h"
#include "ir/binary.h"
#include "ir/op.h"
#include "runtime/sections.h"
#include "runtime/version.h"

namespace pelton::runtime {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 64;

json to_json(const std::vector<Choice>& choices) {
  json out = json::array();
  for (const Choice& c : choices) {
    json j = {{"implementation", c.implementation}};
    for (const Refusal& r : c.refusals) j["refusals"].push_back({r.implementation, r.reason});
    for (const BodyChoices& b : c.bodies) j["bodies"][b.attr] = to_json(b.choices);
    if (c.seconds > 0) j["seconds"] = c.seconds;
    out.push_back(std::move(j));
  }
  return out;
}

[[noreturn]] void bad(std::string what) {
  fail(ErrorCode::bad_format, std::move(what));  // the caller adds the section
}

const json& get(const json& j, const char* key) {
  auto it = j.find(key);
  if (it == j.end()) bad(cat("'", key, "' is missing"));
  return *it;
}
std::string text(const json& j, const char* what) {
  if (!j.is_string()) bad(cat("'", what, "' must be a text"));
  return j.get<std::string>();
}
int64_t integer(const json& j, const char* what) {
  if (!j.is_number_integer()) bad(cat("'", what, "' must be an integer"));
  return json_integer(j);
}
double number(const json& j, const char* what) {
  if (!j.is_number()) bad(cat("'", what, "' must be a number"));
  return j.get<double>();
}

std::vector<Choice> read_choices(const json& list, const ir::Graph& g, int depth) {
  if (depth > kMaxDepth || !list.is_array() || list.size() != g.node_count())
    bad(cat("'choices' must list one entry for each of the ", g.node_count(), " nodes of graph '", g.name,
            "'"));
  std::vector<Choice> out(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const json& j = list[i];
    if (!j.is_object()) bad("a choice must be an object");
    Choice& c = out[i];
    c.implementation = text(get(j, "implementation"), "implementation");
    if (auto r = j.find("refusals"); r != j.end())
      for (const json& item : *r) {
        if (!item.is_array() || item.size() != 2) bad("a refusal must be a pair");
        c.refusals.push_back({text(item[0], "refusals"), text(item[1], "refusals")});
      }
    if (auto s = j.find("seconds"); s != j.end()) c.seconds = number(*s, "seconds");
    if (auto b = j.find("bodies"); b != j.end()) {
      if (!b->is_object()) bad("'bodies' must be an object");
      for (const auto& [attr, choices] : b->items()) {
        const ir::Node& n = g[g.order()[i]];
        auto body = n.attrs.find(attr);
        auto inner = body == n.attrs.end() ? nullptr : std::get_if<ir::GraphPtr>(&body->second);
        if (!inner) bad(cat("'", attr, "' is no sub-graph of ", g.describe(g.order()[i])));
        c.bodies.push_back({attr, read_choices(choices, **inner, depth + 1)});
      }
    }
    bool nothing = c.implementation == kNothing;
    if (nothing && !costs_nothing(g, g.order()[i]))
      bad(cat(g.describe(g.order()[i]), " has work to do but implementation '", kNothing, "'"));
  }
  return out;
}

void count_ops(const ir::Graph& g, std::map<std::string, int>& ops) {
  for (ir::NodeId id : g.order()) {
    ops[std::string(g.op(id).name)] = g.op(id).version;
    for (const auto& [key, value] : g[id].attrs)
      if (auto body = std::get_if<ir::GraphPtr>(&value)) count_ops(**body, ops);
  }
}

json parse_bounded(std::string_view content) {
  // Strings of a manifest are bounded by its section; nesting is bounded here, since the parser recurses.
  json j = json::parse(
      content.begin(), content.end(),
      [](int depth, json::parse_event_t, json&) {
        if (depth > 8 * kMaxDepth) bad("it is nested too deep");
        return true;
      },
      false);
  if (!j.is_object()) bad("it is no JSON object");
  return j;
}

}  // namespace

std::string manifest_text(const Plan& plan, int indent) {
  const ir::Graph& g = plan.graph;
  std::map<std::string, int> ops;
  count_ops(g, ops);
  json inputs = json::array(), outputs = json::array(), guards = json::array(), passes = json::array();
  for (ir::ValueId v : g.inputs) inputs.push_back({{"name", g[v].name}, {"type", g.type(v).str()}});
  for (size_t i = 0; i < g.outputs.size(); ++i)
    outputs.push_back({{"name", g.output_name(i)}, {"type", g.type(g.outputs[i]).str()}});
  for (const ir::Fact& f : g.guards) guards.push_back(f.str());
  for (const PassReport& p : plan.passes)
    passes.push_back({{"name", p.name}, {"changes", p.changes}, {"notes", p.notes}});
  const device::Target& t = plan.target;
  json j = {{"format", kPlanVersion},
            {"pelton", std::string(version())},
            {"ir", ir::kBinaryVersion},
            {"ops", ops},
            {"inputs", inputs},
            {"outputs", outputs},
            {"precision", plan.precision},
            {"target",
             {{"kind", t.kind == device::Kind::cpu ? "cpu" : "cuda"},
              {"name", t.name},
              {"isa", device::to_string(t.isa)},
              {"threads", t.threads},
              {"l1_bytes", t.l1_bytes},
              {"l2_bytes", t.l2_bytes},
              {"sm", t.sm},
              {"product", t.product}}},
            {"source", {{"name", plan.source}, {"sha256", plan.source_sha256}}},
            {"options", plan.options},
            {"optimum", plan.optimum},
            {"guards", guards},
            {"passes", passes},
            {"choices", to_json(plan.choices)}};
  if (plan.unguarded) j["unguarded"] = to_json(plan.unguarded->choices);
  return j.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string preprocess_text(const Preprocess& p) {
  return json{{"version", 1},
              {"name", p.name},
              {"input", p.input},
              {"pipeline", p.pipeline},
              {"choices", to_json(p.plan->choices)}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

void read_preprocess(std::string_view content, Preprocess& p, Plan& plan) {
  const json j = parse_bounded(content);
  if (int64_t v = integer(get(j, "version"), "version"); v != 1)
    fail(ErrorCode::unsupported_version, cat("preprocessing of version ", v, " is not known"), "",
         "use a newer version of Pelton");
  p.name = text(get(j, "name"), "name");
  p.input = text(get(j, "input"), "input");
  p.pipeline = text(get(j, "pipeline"), "pipeline");
  plan.choices = read_choices(get(j, "choices"), plan.graph, 0);
}

void read_manifest(std::string_view manifest, Plan& plan, Plan* unguarded) {
  json j = parse_bounded(manifest);
  plan.precision = text(get(j, "precision"), "precision");
  const json& source = get(j, "source");
  plan.source = text(get(source, "name"), "source.name");
  plan.source_sha256 = text(get(source, "sha256"), "source.sha256");
  const json& target = get(j, "target");
  device::Target& t = plan.target;
  t.name = text(get(target, "name"), "target.name");
  std::string kind = text(get(target, "kind"), "target.kind");
  if (kind != "cpu" && kind != "cuda") bad(cat("there is no kind of target '", kind, "'"));
  t.kind = kind == "cpu" ? device::Kind::cpu : device::Kind::cuda;
  if (std::string isa = text(get(target, "isa"), "target.isa"); t.kind == device::Kind::cpu)
    t.isa = device::isa_from_name(isa);
  t.threads = static_cast<int>(integer(get(target, "threads"), "target.threads"));
  t.l1_bytes = integer(get(target, "l1_bytes"), "target.l1_bytes");
  t.l2_bytes = integer(get(target, "l2_bytes"), "target.l2_bytes");
  t.sm = static_cast<int>(integer(get(target, "sm"), "target.sm"));
  if (auto product = target.find("product"); product != target.end())  // which older plans do not name
    t.product = text(*product, "target.product");
  for (const auto& [key, value] : get(j, "options").items()) plan.options[key] = text(value, "options");
  for (const auto& [key, value] : get(j, "optimum").items()) plan.optimum[key] = integer(value, "optimum");
  for (const json& p : get(j, "passes")) {
    PassReport report;
    report.name = text(get(p, "name"), "passes.name");
    report.changes = integer(get(p, "changes"), "passes.changes");
    for (const json& note : get(p, "notes")) report.notes.push_back(text(note, "passes.notes"));
    plan.passes.push_back(std::move(report));
  }
  plan.choices = read_choices(get(j, "choices"), plan.graph, 0);
  if (unguarded) {
    unguarded->choices = read_choices(get(j, "unguarded"), unguarded->graph, 0);
    unguarded->target = plan.target;
    unguarded->precision = plan.precision;
    unguarded->source = plan.source;
  }
}

}  // namespace pelton::runtime
