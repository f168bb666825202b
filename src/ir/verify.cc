// SPDX-License-Identifier: Apache-2.0
#include "ir/verify.h"

#include <algorithm>
#include <unordered_set>

#include "ir/custom.h"
#include "ir/infer.h"
#include "ir/op.h"

namespace pelton::ir {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, std::string_view stage, int depth) : g_(graph), stage_(stage), depth_(depth) {}

  void run() {
    if (depth_ > 64) bad("sub-graphs are nested deeper than 64", "");
    for (ValueId v : g_.inputs) define(v, "graph input");
    for (const Slot& s : g_.slots) slot(s);
    for (NodeId id : g_.order()) node(id);
    for (ValueId v : g_.outputs) used(v, "graph output");
    for (const Slot& s : g_.slots)
      if (s.next) {
        used(s.next, cat("state slot '", s.name, "'"));
        if (!compatible(g_.type(s.next), s.type))
          bad(cat("state slot '", s.name, "' holds ", s.type.str(), " but its next value is ",
                  g_.type(s.next).str()),
              s.name);
      }
    aliases();
    effects();
    types();
  }

 private:
  [[noreturn]] void bad(std::string text, std::string where) const {
    fail(ErrorCode::internal, cat("invalid graph", stage_.empty() ? "" : cat(" after ", stage_), ": ", text),
         std::move(where));
  }
  void define(ValueId v, std::string_view what) {
    if (!v || v.index >= g_.value_count()) bad(cat(what, " has no value"), "");
    if (!defined_.insert(v.index).second) bad(cat(g_.label(v), " is defined twice"), std::string(what));
  }
  void used(ValueId v, const std::string& user) const {
    if (!v || v.index >= g_.value_count()) bad("uses a value that does not exist", user);
    if (!defined_.count(v.index)) bad(cat("uses ", g_.label(v), " before it is defined"), user);
  }
  bool compatible(const Type& a, const Type& b) const {
    if (a.kind != b.kind) return false;
    if (!a.is_tensor()) return true;
    if (a.dtype != b.dtype || a.ranked != b.ranked || a.rank() != b.rank()) return false;
    for (size_t i = 0; i < a.shape.size(); ++i)
      if (equal(a.shape[i], b.shape[i], g_.symbols->ranges) == Tri::no) return false;
    return true;
  }

  void slot(const Slot& s) {
    define(s.old_value, cat("state slot '", s.name, "'"));
    if (!slot_names_.insert(s.name).second) bad(cat("two state slots are named '", s.name, "'"), s.name);
    if (!s.tied_to.empty() && !slot_names_.count(s.tied_to))
      bad(cat("state slot '", s.name, "' is tied to '", s.tied_to, "', which is not declared before it"),
          s.name);
    if (s.initial.defined() &&
        !compatible(Type::tensor(s.initial.dtype(), to_shape(s.initial.dims())), s.type))
      bad(cat("state slot '", s.name, "' of type ", s.type.str(), " starts as ", s.initial.str()), s.name);
  }

  void node(NodeId id) {
    const Node& n = g_[id];
    if (!n.alive) bad("a removed node is still in the order", g_.describe(id));
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (!n.inputs[i]) continue;
      used(n.inputs[i], g_.describe(id));
      const auto& uses = g_[n.inputs[i]].uses;
      if (std::count(uses.begin(), uses.end(), Use{id, static_cast<uint32_t>(i)}) != 1)
        bad(cat("the use list of ", g_.label(n.inputs[i]), " misses input ", i), g_.describe(id));
    }
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      define(n.outputs[i], g_.describe(id));
      const Value& v = g_[n.outputs[i]];
      if (v.producer != id || v.result != i)
        bad(cat(g_.label(n.outputs[i]), " names another producer"), g_.describe(id));
      if (v.type.kind == TypeKind::token && v.uses.size() > 1)
        bad(cat("token ", g_.label(n.outputs[i]), " is used twice"), g_.describe(id));
    }
    for (const auto& [key, value] : n.attrs)
      if (auto g = std::get_if<GraphPtr>(&value)) Verifier(**g, stage_, depth_ + 1).run();
  }

  // Several ops with effects are ordered by tokens, never by their place in the list.
  void effects() const {
    size_t ordered = 0;
    NodeId loose;
    for (NodeId id : g_.order()) {
      if (effects_of(g_[id]) != Effects::ordered) continue;
      ++ordered;
      bool takes_token = false;
      for (ValueId v : g_[id].inputs) takes_token |= v && g_.type(v).kind == TypeKind::token;
      if (!takes_token) loose = id;
    }
    if (loose && ordered > 1)
      bad("has effects but takes no token, beside other ops with effects", g_.describe(loose));
  }

  // The donated input must have no reader that may run after the output exists; order is by data flow, so
  // every reader has to be the producer itself or one of its ancestors.
  void aliases() {
    for (const Alias& a : g_.aliases) {
      if (a.output >= g_.outputs.size() || a.input >= g_.inputs.size())
        bad(cat("alias of output ", a.output, " and input ", a.input, " is out of range"), "");
      ValueId out = g_.outputs[a.output], in = g_.inputs[a.input];
      if (!(g_.type(out).dtype == g_.type(in).dtype) || !compatible(g_.type(out), g_.type(in)))
        bad(cat("alias of ", g_.type(out).str(), " with ", g_.type(in).str()), g_.label(out));
      if (!a.must || out == in) continue;
      NodeId producer = g_[out].producer;
      if (!producer) bad(cat("must-alias output ", a.output, " is another input"), g_.label(out));
      std::unordered_set<uint32_t> before = ancestors(producer);
      for (Use u : g_[in].uses)
        if (u.user != producer && !before.count(u.user.index))
          bad(cat("input ", g_.label(in), " is overwritten by ", g_.describe(producer), " but ",
                  g_.describe(u.user), " may still read it"),
              g_.describe(u.user));
    }
  }
  std::unordered_set<uint32_t> ancestors(NodeId from) const {
    std::unordered_set<uint32_t> seen;
    std::vector<NodeId> stack{from};
    while (!stack.empty()) {
      NodeId id = stack.back();
      stack.pop_back();
      for (ValueId v : g_[id].inputs)
        if (v && g_[v].producer && seen.insert(g_[v].producer.index).second) stack.push_back(g_[v].producer);
    }
    return seen;
  }

  // Inference of a copy must agree with the types on record.
  void types() const {
    Graph copy = g_;
    for (NodeId id : g_.order()) {
      infer(copy, id);
      for (ValueId v : g_[id].outputs) {
        if (!compatible(g_.type(v), copy.type(v)))
          bad(cat(g_.label(v), " is recorded as ", g_.type(v).str(), " but inferred as ", copy.type(v).str()),
              g_.describe(id));
        copy.edit(v).type = g_.type(v);
      }
    }
  }

  const Graph& g_;
  std::string_view stage_;
  int depth_;
  std::unordered_set<uint32_t> defined_;
  std::unordered_set<std::string> slot_names_;
};

}  // namespace

void verify(const Graph& graph, std::string_view stage) {
  Verifier(graph, stage, 0).run();
}

}  // namespace pelton::ir
