// SPDX-License-Identifier: Apache-2.0
#include "compiler/tune.h"

#include <algorithm>

#include "base/hash.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "compiler/timing.h"
#include "ir/op.h"
#include "ir/text.h"

namespace pelton::compiler {

using namespace ir;

namespace {

constexpr double kNodeSeconds = 0.03, kFormSeconds = 1.0;

std::string spec_text(const Graph& g, ValueId v, const SymbolValues& sizes) {
  if (!v) return "_";
  const Type& t = g.type(v);
  if (!t.is_tensor()) return t.str();
  std::string out = cat(name(t.dtype), eval(t.shape, sizes));
  if (!t.layout.is_plain()) append(out, cat("{", t.layout.str(), "}"));
  if (g.constant(v)) out += '=';
  return out;
}

// Implementations worth timing: those that say so, and the first of the others.
std::vector<const backend::Implementation*> worth_timing(const Graph& g, NodeId id,
                                                         const backend::Registry& registry,
                                                         const device::Target& target) {
  std::vector<const backend::Implementation*> out;
  for (const backend::Implementation* i : registry.candidates(g[id].op->name, target.kind)) {
    if (!i->refuse(g, id, target).empty()) continue;
    out.push_back(i);
    if (!i->timed) break;
  }
  return out;
}

}  // namespace

std::string timing_key(const Graph& g, NodeId id, const SymbolValues& sizes) {
  const Node& n = g[id];
  std::string key(n.is("fused") ? n.get_text("kind") : std::string(n.op->name)), rest;
  for (ValueId v : n.inputs) append(key, cat(" ", spec_text(g, v, sizes)));
  key += " ->";
  for (ValueId v : n.outputs) append(key, cat(" ", spec_text(g, v, sizes)));
  // Attributes, bodies included; values of constants do not change the time.
  for (const auto& [attr, value] : n.attrs)
    append(rest, cat(attr, "=", print(value, {.max_elements = 2, .names = false}), ";"));
  return cat(key, " #", checksum(rest).str().substr(0, 16));
}

Tuner::Tuner(Tactics& tactics, double budget_seconds, const backend::Registry& registry,
             const device::Target& target, const std::atomic<bool>* stop)
    : tactics_(tactics),
      budget_(budget_seconds),
      registry_(registry),
      target_(target),
      stop_(stop),
      machine_(machine_name(target)) {}

bool Tuner::spent() const {
  return seconds_left() <= 0 || (stop_ && *stop_) || interrupted();
}

size_t Tuner::choose_form(const std::string& key, const std::vector<std::string>& names,
                          const std::function<runtime::Plan(size_t)>& make) {
  const auto index = [&](const std::string& chosen) {
    const auto it = std::find(names.begin(), names.end(), chosen);
    return it == names.end() ? size_t{0} : static_cast<size_t>(it - names.begin());
  };
  if (const Tactic* known = tactics_.find(machine_, key)) return index(known->choice);
  if (spent()) return 0;
  std::vector<std::shared_ptr<const runtime::Plan>> plans;
  std::vector<Candidate> times;
  try {
    for (size_t i = 0; i < names.size() && !spent(); ++i)
      plans.push_back(std::make_shared<const runtime::Plan>(make(i)));
    if (plans.size() < names.size()) {
      notes_.push_back("forms of the plan were not timed: making them took the time budget");
      return 0;
    }
    const SymbolValues sizes = sizes_of(plans[0]->graph, plans[0]->optimum);
    times = time_plans(plans, sizes, registry_, target_, std::min(kFormSeconds, budget_ / 2), seconds_left());
  } catch (const Error& e) {
    if (e.code() == ErrorCode::device_lost || (e.code() == ErrorCode::cancelled && !interrupted())) throw;
    notes_.push_back(cat("forms of the plan were not timed: ", e.message()));
    return 0;
  }
  for (size_t i = 0; i < names.size(); ++i) times[i].name = names[i];
  Tactic t = decide(times);
  std::string line;
  for (const Candidate& c : t.candidates)
    append(line, cat(line.empty() ? "" : ", ", c.name, " ", static_cast<int64_t>(c.ms * 1e3), " us"));
  notes_.push_back(cat("form ", t.choice, " (", line, ")"));
  const size_t chosen = index(t.choice);
  tactics_.set(machine_, key, std::move(t));
  return chosen;
}

int64_t Tuner::choose_nodes(const Graph& g, const std::map<std::string, int64_t>& optimum,
                            std::vector<runtime::Choice>& choices) {
  const SymbolValues sizes = sizes_of(g, optimum);
  Progress progress("timing nodes", static_cast<int64_t>(g.node_count()));
  int64_t timed = 0, changed = 0, left = 0;
  for (size_t i = 0; i < g.order().size(); ++i, progress.add()) {
    const NodeId id = g.order()[i];
    runtime::Choice& choice = choices[i];
    if (choice.implementation == runtime::kNothing || choice.implementation == runtime::kReference) continue;
    const auto candidates = worth_timing(g, id, registry_, target_);
    if (candidates.size() < 2) continue;
    const std::string key = timing_key(g, id, sizes);
    const Tactic* known = tactics_.find(machine_, key);
    if (!known) {
      if (spent()) {
        ++left;
        continue;
      }
      std::vector<Candidate> times =
          time_node(g, id, sizes, candidates, target_, kNodeSeconds, seconds_left(), notes_);
      if (times.empty()) continue;
      tactics_.set(machine_, key, decide(std::move(times)));
      known = tactics_.find(machine_, key);
      ++timed;
    }
    const auto chosen = std::find_if(candidates.begin(), candidates.end(),
                                     [&](const auto* c) { return c->name == known->choice; });
    if (chosen == candidates.end()) continue;  // the file knows an implementation that this build lacks
    for (const Candidate& c : known->candidates)
      if (c.name == known->choice) choice.seconds = c.ms * 1e-3;
    if (choice.implementation == known->choice) continue;
    choice.implementation = known->choice;
    ++changed;
  }
  std::string note = cat(timed, " nodes timed, ", changed, " run on another implementation than the first");
  if (left) append(note, cat("; the time budget left out ", left));
  notes_.push_back(std::move(note));
  return left;
}

}  // namespace pelton::compiler
