// SPDX-License-Identifier: Apache-2.0
// `if` becomes an `if` over the gradients of its branches. `loop` and `scan` store what they carry into each
// iteration; their backward pass is a scan over the iterations in reverse order that runs the body again.
#include "autodiff/control.h"

#include <memory>

#include "autodiff/reverse.h"
#include "ir/gradient.h"

namespace pelton::autodiff {

using namespace ir;

namespace {

using Values = std::vector<ValueId>;

// A copy that shares its symbols with the graph around it and whose random nodes name their streams, so that
// running it again draws the same numbers.
std::shared_ptr<Graph> editable(const Graph& body) {
  auto copy = std::make_shared<Graph>(body);
  copy->symbols = body.symbols;
  for (NodeId id : copy->order()) {
    Node& n = copy->edit(id);
    if (n.op->effects == Effects::random && n.get_int("stream") == 0)
      n.attrs["stream"] = static_cast<int64_t>(n.stable_id);
  }
  return copy;
}
void set_body(Graph& g, NodeId id, const char* name, std::shared_ptr<Graph> body) {
  g.edit(id).attrs[name] = GraphPtr(std::move(body));
}

// Runs `body` on `inputs` inside b's graph and sweeps back from its results; gradients of `wrt`, zeros where
// nothing flows. A gradient that is none is no seed.
Values run_back(Builder& b, const Graph& body, const Values& inputs, const Values& result_grads,
                const Values& wrt) {
  Values results = inline_graph(b, body, inputs);
  std::vector<Seed> seeds;
  for (size_t i = 0; i < results.size(); ++i)
    if (result_grads[i]) seeds.push_back({results[i], result_grads[i]});
  // A value that the body hands through is seed and leaf at once.
  Values grads = reverse(b.graph(), seeds, wrt, {}, 0);
  for (size_t i = 0; i < grads.size(); ++i)
    if (!grads[i]) grads[i] = zeros_like(b, wrt[i]);
  return grads;
}

// What the gradients of an operand list are made of.
std::vector<size_t> chosen(const Graph& g, const Node& n, const std::vector<bool>& wanted, size_t first,
                           size_t end) {
  std::vector<size_t> out;
  for (size_t i = first; i < end; ++i)
    if (wanted[i] && differentiable(g.type(n.inputs[i]))) out.push_back(i);
  return out;
}

Values differentiate_if(Graph& g, NodeId id, const Values& result_grads, const std::vector<bool>& wanted) {
  for (const char* name : {"then", "else"}) set_body(g, id, name, editable(g[id].get_graph(name)));
  const Node n = g[id];
  std::vector<size_t> wrt = chosen(g, n, wanted, 1, n.inputs.size());
  // Inputs of the new node: the condition, the gradients that there are, the captured values.
  Values inputs{n.inputs[0]};
  for (ValueId v : result_grads)
    if (v) inputs.push_back(v);
  inputs.insert(inputs.end(), n.inputs.begin() + 1, n.inputs.end());
  Attrs attrs;
  for (const char* name : {"then", "else"}) {
    auto branch = std::make_shared<Graph>(cat(name, "/grad"));
    branch->symbols = g.symbols;
    Builder b(*branch);
    Values grads, captured;
    for (ValueId v : result_grads) grads.push_back(v ? branch->add_input(g.type(v)) : ValueId{});
    for (size_t i = 1; i < n.inputs.size(); ++i) captured.push_back(branch->add_input(g.type(n.inputs[i])));
    Values leaves;
    for (size_t i : wrt) leaves.push_back(captured[i - 1]);
    branch->outputs = run_back(b, n.get_graph(name), captured, grads, leaves);
    attrs[name] = GraphPtr(std::move(branch));
  }
  Builder b(g);
  b.set_name(cat(n.name.empty() ? "if" : n.name, "/grad"));
  Values results = b.ops("if", inputs, attrs, wrt.size()), out(n.inputs.size());
  for (size_t k = 0; k < wrt.size(); ++k) out[wrt[k]] = results[k];
  return out;
}

// The two kinds of loops through one description: places of their operands in the node and in the body.
struct Loop {
  bool scan;
  size_t carried, first_carried, scanned, first_captured;  // in the node's inputs
  size_t lead;                                             // results of the body before the carried ones
  size_t body_carried, body_scanned, body_captured;        // in the body's inputs
  explicit Loop(const Node& n) : scan(n.is("scan")) {
    carried = static_cast<size_t>(n.get_int("carried"));
    scanned = scan ? static_cast<size_t>(n.get_int("scanned")) : 0;
    first_carried = scan ? 0 : 2;
    first_captured = first_carried + carried + scanned;
    lead = scan ? 0 : 1;
    body_carried = scan ? 0 : 2;
    body_scanned = body_carried + carried;
    body_captured = body_scanned + scanned;
  }
};
int64_t item(const Ints& values, size_t i) {
  return values.empty() ? 0 : values[i];
}

class LoopGradient {
 public:
  LoopGradient(Graph& g, NodeId id, const Values& result_grads, const std::vector<bool>& wanted)
      : g_(g), id_(id), loop_(g[id]), result_grads_(result_grads), wanted_(wanted) {}

  Values run() {
    store_carried();
    const Node n = g_[id_];
    Builder b(g_);
    b.set_name(cat(n.name.empty() ? std::string(n.op->name) : n.name, "/grad"));
    choose(n);

    // Carried by the backward scan: gradients of what the loop carries, then sums for what it captures.
    Values inputs;
    for (size_t i : carried_) {
      size_t result = i - loop_.first_carried;
      inputs.push_back(result_grads_[result] ? result_grads_[result] : zeros_like(b, n.outputs[result]));
    }
    for (size_t i : captured_) inputs.push_back(zeros_like(b, n.inputs[i]));
    size_t carried = inputs.size();
    // Scanned: the stored values, the scanned operands, the gradients of the stacked results; all backwards.
    Ints axes, reverse;
    auto scan = [&](ValueId v, int64_t axis, bool backwards) {
      inputs.push_back(v);
      axes.push_back(axis);
      reverse.push_back(backwards);
    };
    for (size_t k = 0; k < stored_; ++k) scan(n.outputs[first_stored_ + k], 0, true);
    const size_t scans = first_stored_ - loop_.carried;
    for (size_t i = 0; i < loop_.scanned; ++i)
      scan(n.inputs[loop_.first_carried + loop_.carried + i], item(n.get_ints("axes"), i),
           !item(n.get_ints("reverse"), i));
    for (size_t i = 0; i < scans; ++i)
      if (ValueId v = result_grads_[loop_.carried + i])
        scan(v, loop_.scan ? item(n.get_ints("out_axes"), i) : 0,
             loop_.scan ? !item(n.get_ints("out_reverse"), i) : true);
    size_t scanned = inputs.size() - carried;
    inputs.insert(inputs.end(), n.inputs.begin() + static_cast<std::ptrdiff_t>(loop_.first_captured),
                  n.inputs.end());

    Ints out_axes, out_reverse;
    for (size_t i : scanned_) {
      size_t k = i - loop_.first_carried - loop_.carried;
      out_axes.push_back(item(n.get_ints("axes"), k));
      out_reverse.push_back(!item(n.get_ints("reverse"), k));
    }
    Attrs attrs{{"body", body(n, inputs, carried, axes)},
                {"carried", static_cast<int64_t>(carried)},
                {"scanned", static_cast<int64_t>(scanned)},
                {"axes", axes},
                {"reverse", reverse},
                {"out_axes", out_axes},
                {"out_reverse", out_reverse}};
    Values results = b.ops("scan", inputs, attrs, carried + scanned_.size()), out(n.inputs.size());
    size_t at = 0;
    for (const std::vector<size_t>* list : {&carried_, &captured_, &scanned_})
      for (size_t i : *list) out[i] = results[at++];
    return out;
  }

 private:
  // Adds to the node the carried values (of a loop also the iteration and the condition) as stacked results.
  void store_carried() {
    auto forward = editable(g_[id_].get_graph("body"));
    const Values all(forward->inputs.begin(),
                     forward->inputs.begin() + static_cast<std::ptrdiff_t>(loop_.body_scanned));
    first_stored_ = g_[id_].outputs.size();
    stored_ = all.size();
    Builder b(*forward);
    for (ValueId v : all) {
      const Type& t = forward->type(v);
      if (!t.is_tensor())
        fail(ErrorCode::unsupported_op, cat("cannot be differentiated: it carries ", t.str()),
             g_.describe(id_));
      forward->outputs.push_back(v);
    }
    set_body(g_, id_, "body", forward);
    Node& n = g_.edit(id_);
    for (const char* list : {"out_axes", "out_reverse"}) {
      if (!loop_.scan || n.get_ints(list).empty()) continue;
      Ints longer = n.get_ints(list);
      longer.resize(longer.size() + stored_, 0);
      n.attrs[list] = longer;
    }
    for (size_t k = 0; k < stored_; ++k) g_.add_node_output(id_);
    infer(g_, id_);
  }

  void choose(const Node& n) {
    // A carried value has a gradient if any of its kind may: what it starts from, or what an iteration makes
    // of it.
    for (size_t i = 0; i < loop_.carried; ++i)
      if (differentiable(g_.type(n.inputs[loop_.first_carried + i])))
        carried_.push_back(loop_.first_carried + i);
    size_t scanned = loop_.first_carried + loop_.carried;
    scanned_ = chosen(g_, n, wanted_, scanned, scanned + loop_.scanned);
    captured_ = chosen(g_, n, wanted_, loop_.first_captured, n.inputs.size());
  }

  // The body of the backward scan; `inputs` are those of its node.
  GraphPtr body(const Node& n, const Values& inputs, size_t carried, const Ints& axes) {
    auto back = std::make_shared<Graph>("backward");
    back->symbols = g_.symbols;
    Builder b(*back);
    b.set_name(n.name);
    Values v;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Type t = g_.type(inputs[i]);
      if (i >= carried && i < carried + axes.size()) {
        int64_t axis = axes[i - carried];
        t.shape.erase(t.shape.begin() + (axis < 0 ? axis + t.rank() : axis));
      }
      v.push_back(back->add_input(t));
    }
    const Graph& forward = n.get_graph("body");
    // Inputs of the forward body: the stored values, one slice of each scanned operand, the captured values.
    Values forward_inputs(v.begin() + static_cast<std::ptrdiff_t>(carried),
                          v.begin() + static_cast<std::ptrdiff_t>(carried + stored_ + loop_.scanned));
    forward_inputs.insert(forward_inputs.end(),
                          v.begin() + static_cast<std::ptrdiff_t>(carried + axes.size()), v.end());
    Values grads(forward.outputs.size());
    for (size_t k = 0; k < carried_.size(); ++k) grads[loop_.lead + carried_[k] - loop_.first_carried] = v[k];
    size_t next = carried + stored_ + loop_.scanned;
    for (size_t i = loop_.carried; i < first_stored_; ++i)
      if (result_grads_[i]) grads[loop_.lead + i] = v[next++];
    Values leaves;
    for (size_t i : carried_) leaves.push_back(forward_inputs[loop_.body_carried + i - loop_.first_carried]);
    for (size_t i : captured_)
      leaves.push_back(forward_inputs[loop_.body_captured + i - loop_.first_captured]);
    for (size_t i : scanned_)
      leaves.push_back(forward_inputs[loop_.body_scanned + i - loop_.first_carried - loop_.carried]);
    Values found = run_back(b, forward, forward_inputs, grads, leaves);
    for (size_t k = 0; k < captured_.size(); ++k) {
      ValueId& sum = found[carried_.size() + k];
      sum = b.add(v[carried_.size() + k], sum);
    }
    back->outputs = found;
    return back;
  }

  Graph& g_;
  NodeId id_;
  Loop loop_;
  const Values& result_grads_;
  const std::vector<bool>& wanted_;
  size_t first_stored_ = 0, stored_ = 0;
  std::vector<size_t> carried_, scanned_, captured_;  // inputs of the node whose gradients are made
};

}  // namespace

std::optional<std::vector<ValueId>> differentiate_control(Graph& graph, NodeId id,
                                                          const std::vector<ValueId>& result_grads,
                                                          const std::vector<bool>& wanted) {
  if (graph[id].is("if")) return differentiate_if(graph, id, result_grads, wanted);
  if (graph[id].is("loop") || graph[id].is("scan"))
    return LoopGradient(graph, id, result_grads, wanted).run();
  return std::nullopt;
}

}  // namespace pelton::autodiff
