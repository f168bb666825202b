// SPDX-License-Identifier: Apache-2.0
#include "cli/verifier.h"

#include <cmath>
#include <map>
#include <set>

#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/quantised.h"
#include "interp/interpreter.h"
#include "ir/op.h"
#include "ir/physical.h"
#include "passes/specialise.h"
#include "register/registry.h"

namespace pelton::cli {
namespace {

using ir::HostValue;

Gap difference(const Tensor& got, const Tensor& expected) {
  Gap e;
  if (got.dims() != expected.dims() || got.dtype() != expected.dtype()) {
    e.broken = cat("is ", got.str(), ", reference ", expected.str());
    return e;
  }
  double scale = 0;
  for (int64_t i = 0; i < got.count(); ++i) {
    double a = got.get_double(i), b = expected.get_double(i);
    if (std::isfinite(b)) scale = std::max(scale, std::abs(b));
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (!std::isfinite(a) || !std::isfinite(b)) {
      if (e.broken.empty()) e.broken = cat("element ", i, " is ", a, ", reference ", b);
      continue;
    }
    e.abs = std::max(e.abs, std::abs(a - b));
  }
  e.rel = e.abs == 0 ? 0 : e.abs / std::max(scale, 1e-30);
  return e;
}

bool comparable(const Tensor& t) {
  return t.defined() && t.dtype() != DType::string;
}

// One node as a graph of its own, at the sizes of this run: its inputs are graph inputs, except constants.
std::shared_ptr<runtime::Plan> single_node(const ir::Graph& g, ir::NodeId id, const runtime::Choice& choice,
                                           const SymbolValues& sizes) {
  auto plan = std::make_shared<runtime::Plan>();
  ir::Graph& one = plan->graph;
  one = ir::Graph(cat("alone: ", g.describe(id)));
  *one.symbols = *g.symbols;
  for (const auto& [symbol, size] : sizes) one.symbols->ranges[symbol] = {size, size};
  const ir::Node& n = g[id];
  runtime::Choice nothing;
  nothing.implementation = runtime::kNothing;
  std::map<uint32_t, ir::ValueId> values;
  std::vector<ir::ValueId> inputs;
  for (ir::ValueId v : n.inputs) {
    if (!v) {
      inputs.emplace_back();
      continue;
    }
    ir::ValueId& mine = values[v.index];
    if (const Tensor* constant = mine ? nullptr : g.constant(v)) {
      ir::NodeId c = one.add_node(ir::op("constant"), {}, {{"value", *constant}}, 1);
      mine = one[c].outputs[0];
      plan->choices.push_back(nothing);
    } else if (!mine) {
      mine = one.add_input(g.type(v), cat("in", values.size()));
    }
    one.edit(mine).type = g.type(v);
    inputs.push_back(mine);
  }
  ir::NodeId copy = one.add_node(*n.op, inputs, n.attrs, n.outputs.size(), n.name);
  for (size_t i = 0; i < n.outputs.size(); ++i) {
    one.edit(one[copy].outputs[i]).type = g.type(n.outputs[i]);
    one.outputs.push_back(one[copy].outputs[i]);
  }
  plan->choices.push_back(choice);
  // Attributes may name symbols that none of the node's inputs shows.
  passes::specialise(one, {}, nullptr, {});
  return plan;
}

class Verifier {
 public:
  Verifier(const VerifyTolerance& tolerance, const runtime::Executable& e, const ir::Graph* source)
      : tolerance_(tolerance),
        e_(e),
        g_(e.graph()),
        source_(source),
        levels_(quantised_values(source ? *source : e.graph())) {}

  void run(const std::vector<HostValue>& inputs) {
    {
      Progress progress("reference, plan's graph", static_cast<int64_t>(g_.node_count()));
      std::vector<HostValue> reference(g_.value_count());
      for (size_t i = 0; i < g_.inputs.size(); ++i) {
        reference[g_.inputs[i].index] = inputs[i];
        bind(g_.inputs[i], inputs[i]);
      }
      std::vector<uint32_t> uses(g_.value_count(), 0);
      for (ir::NodeId id : g_.order())
        for (ir::ValueId v : g_[id].inputs)
          if (v) ++uses[v.index];
      size_t position = 0;
      interp::Options options;
      options.observe = [&](ir::NodeId id, const std::vector<HostValue>& outputs) {
        throw_if_interrupted();
        const ir::Node& n = g_[id];
        for (size_t i = 0; i < n.outputs.size(); ++i) {
          reference[n.outputs[i].index] = outputs[i];
          bind(n.outputs[i], outputs[i]);
        }
        alone(id, e_.choices()[position++], reference);
        for (size_t i = 0; i < n.outputs.size(); ++i)
          if (!source_ && !g_[n.outputs[i]].name.empty()) keep(g_[n.outputs[i]].name, outputs[i]);
        for (ir::ValueId v : n.inputs)
          if (v && --uses[v.index] == 0) reference[v.index] = HostValue();
        progress.add();
      };
      interp::Result result = interp::run(g_, inputs, {}, options);
      if (!source_)
        for (size_t i = 0; i < g_.outputs.size(); ++i) keep(g_.output_name(i), result.outputs[i]);
    }
    if (source_) {
      Progress progress("reference, source graph", static_cast<int64_t>(source_->node_count()));
      interp::Options options;
      options.observe = [&](ir::NodeId id, const std::vector<HostValue>& outputs) {
        throw_if_interrupted();
        const ir::Node& n = (*source_)[id];
        for (size_t i = 0; i < n.outputs.size(); ++i)
          if (!n.is("constant")) keep((*source_)[n.outputs[i]].name, outputs[i]);
        progress.add();
      };
      interp::Result result = interp::run(*source_, inputs, {}, options);
      for (size_t i = 0; i < source_->outputs.size(); ++i) keep(source_->output_name(i), result.outputs[i]);
    }
    cumulative(inputs);
  }

  VerifyReport take() { return std::move(out_); }

 private:
  void bind(ir::ValueId id, const HostValue& v) {
    if (v.tensor.defined()) interp::bind_symbols(g_.type(id), v.tensor.dims(), sizes_, g_.label(id));
  }
  void keep(const std::string& name, const HostValue& v) {
    if (!name.empty() && comparable(v.tensor)) expected_[name] = v.tensor;
  }

  void alone(ir::NodeId id, const runtime::Choice& choice, const std::vector<HostValue>& reference) {
    if (choice.implementation == runtime::kNothing || choice.implementation == runtime::kReference) return;
    auto plan = single_node(g_, id, choice, sizes_);
    const ir::Graph& one = plan->graph;
    auto executable = runtime::Executable::create(plan, registry(), e_.target());
    std::vector<HostValue> inputs;
    const ir::Node& n = g_[id];
    std::set<uint32_t> given;
    for (ir::ValueId v : n.inputs)
      if (v && !g_.constant(v) && given.insert(v.index).second)
        inputs.push_back(ir::to_physical(reference[v.index].tensor, g_.type(v).layout));
    std::vector<HostValue> got = executable->run(inputs);
    for (size_t i = 0; i < got.size(); ++i) {
      const Tensor& want = reference[n.outputs[i].index].tensor;
      if (!comparable(want)) continue;
      VerifyRow row{n.outputs.size() > 1 ? cat(g_.describe(id), " result ", i) : g_.describe(id),
                    choice.implementation,
                    {},
                    true};
      row.error = difference(
          ir::from_physical(got[i].tensor, want.dtype(), want.dims(), one.type(one.outputs[i]).layout), want);
      row.ok = row.error.broken.empty() && row.error.rel <= tolerance_.alone;
      out_.groups.push_back(std::move(row));
    }
  }

  // `slice` of `slices`: which part of the batch `got` is. The worst part is reported.
  void compare_value(const std::string& name, const Tensor& got, const std::string& implementation,
                     int64_t slice = 0, int64_t slices = 1) {
    auto it = expected_.find(name);
    if (it == expected_.end() || (slice == 0 && seen_.count(name))) return;
    Tensor want = it->second;
    if (slices > 1)
      want = Tensor::borrow(want.dtype(), got.dims(),
                            static_cast<const std::byte*>(want.data()) + slice * got.bytes(),
                            std::make_shared<Tensor>(want));
    VerifyRow row{name, implementation, difference(got, want), true};
    row.ok = row.error.broken.empty() &&
             row.error.rel <= (levels_.count(name) ? tolerance_.levels : tolerance_.cumulative);
    auto [seen, fresh] = seen_.emplace(name, out_.values.size());
    if (fresh)
      out_.values.push_back(std::move(row));
    else if (VerifyRow& worst = out_.values[seen->second];
             worst.ok && (!row.ok || row.error.rel > worst.error.rel))
      worst = std::move(row);
  }

  void cumulative(const std::vector<HostValue>& inputs) {
    runtime::RunOptions options;
    options.plain_values = true;
    options.observe = [&](const runtime::StepEvent& event) {
      if (event.depth > 0) return;
      const ir::Node& n = event.graph[event.node];
      for (size_t i = 0; i < n.outputs.size(); ++i) {
        const Tensor& t = event.outputs[i].tensor;
        const std::string& name = event.graph[n.outputs[i]].name;
        if (!comparable(t) || !expected_.count(name)) continue;
        compare_value(name, t, std::string(event.implementation), event.slice, event.slices);
      }
    };
    std::vector<HostValue> got = e_.run(inputs, options);
    for (size_t i = 0; i < got.size(); ++i)
      if (comparable(got[i].tensor)) compare_value(g_.output_name(i), got[i].tensor, "output");
    name_fused();
  }

  // Source values without a counterpart: inside which group they are now, by the name of their node.
  void name_fused() {
    if (!source_) return;
    std::map<std::string, std::string> group_of;
    for (ir::NodeId id : g_.order())
      for (const auto& [key, value] : g_[id].attrs)
        if (auto body = std::get_if<ir::GraphPtr>(&value))
          for (ir::NodeId inner : (*body)->order())
            if (!(**body)[inner].name.empty()) group_of.emplace((**body)[inner].name, g_.describe(id));
    for (ir::NodeId id : source_->order()) {
      const ir::Node& n = (*source_)[id];
      for (ir::ValueId v : n.outputs) {
        const std::string& name = (*source_)[v].name;
        if (!expected_.count(name) || seen_.count(name)) continue;
        auto group = group_of.find(n.name);
        out_.fused.emplace_back(name, group == group_of.end() ? "folded into others" : group->second);
      }
    }
  }

  const VerifyTolerance tolerance_;
  const runtime::Executable& e_;
  const ir::Graph& g_;
  const ir::Graph* source_;
  std::map<std::string, Tensor> expected_;
  SymbolValues sizes_;                  // of this run
  const std::set<std::string> levels_;  // values behind a quantisation
  std::map<std::string, size_t> seen_;  // row of the value
  VerifyReport out_;
};

}  // namespace

VerifyReport verify_plan(const runtime::Executable& executable, const ir::Graph* source,
                         const std::vector<HostValue>& inputs, const VerifyTolerance& tolerance) {
  Verifier v(tolerance, executable, source);
  v.run(inputs);
  return v.take();
}

}  // namespace pelton::cli
