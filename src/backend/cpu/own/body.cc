// SPDX-License-Identifier: Apache-2.0
// A fused node without a kernel of its own: its nodes run one after another on the implementations of single
// nodes, values between them in scratch. Everything but a contraction becomes one tile program if it can.
#include <algorithm>

#include "backend/cpu/fallback.h"
#include "backend/cpu/implementations.h"
#include "backend/cpu/register.h"
#include "backend/cpu/support.h"
#include "backend/cpu/tile/program.h"
#include "backend/ran_by.h"
#include "ir/op.h"
#include "runtime/late_weights.h"

namespace pelton::backend::cpu {
namespace {

const Registry& registry() {
  static const Registry* instance = [] {
    auto* r = new Registry;
    register_cpu(*r);
    return r;
  }();
  return *instance;
}

bool is_view(const ir::Node& n) {
  return n.is("reshape") || n.op->alias == ir::AliasRule::view;
}
const Implementation* implementation_of(const ir::Graph& g, ir::NodeId id, const device::Target& target,
                                        std::string* why) {
  for (const Implementation* item : registry().candidates(g[id].op->name)) {
    std::string reason = item->refuse(g, id, target);
    if (reason.empty()) return item;
    if (why) *why = cat(item->name, ": ", reason);
  }
  return nullptr;
}

// Where a value of the body lies at run time.
struct Location {
  enum Kind : uint8_t { none, input, output, scratch, constant } kind = none;
  int64_t index = 0;  // input, output; byte offset in scratch
  Tensor value;       // constant
};

struct Part {
  std::unique_ptr<Kernel> kernel;
  std::vector<Location> in, out;
};

class BodyKernel final : public Kernel, public HandedOn {
 public:
  BodyKernel(const Instance& instance, const device::Target& target)
      : outer_(instance),
        body_(instance.node().get_graph("body")),
        target_(target),
        where_(body_.value_count()) {
    for (size_t i = 0; i < body_.inputs.size(); ++i)
      where_[body_.inputs[i].index] = {Location::input, static_cast<int64_t>(i), {}};
    for (ir::NodeId id : body_.order())
      if (const Tensor* t = body_[id].is("constant") ? &body_[id].get_tensor("value") : nullptr)
        where_[body_[id].outputs[0].index] = {Location::constant, 0, *t};
    // Results are written where they belong; a second name of one value is copied at the end.
    for (size_t i = 0; i < body_.outputs.size(); ++i) {
      Location& l = where_[root(body_.outputs[i]).index];
      if (l.kind == Location::none)
        l = {Location::output, static_cast<int64_t>(i), {}};
      else
        copies_.push_back({root(body_.outputs[i]), i});
    }
    if (!split_by_contraction())
      for (ir::NodeId id : body_.order()) add_node(id);
    values_bytes_ = scratch_;
    int64_t largest = 0;
    for (const Part& p : parts_) largest = std::max(largest, p.kernel->scratch_bytes());
    scratch_ += align64(largest);
    for (auto& [v, i] : copies_) copy_from_.push_back(where_[v.index]);
    for (size_t i = 0; i < copies_.size(); ++i)
      copy_bytes_.push_back(instance.outputs[copies_[i].second].bytes());
  }
  int64_t scratch_bytes() const override { return scratch_; }
  std::string_view ran_by() const override { return "cpu.body"; }
  int64_t packed_bytes() const override {
    int64_t sum = 0;
    for (const Part& p : parts_) sum += p.kernel->packed_bytes();
    return sum;
  }
  void run(const RunArgs& args) const override {
    constexpr size_t kMax = 64;
    for (const Part& p : parts_) {
      const void* in[kMax];
      void* out[kMax];
      for (size_t i = 0; i < p.in.size(); ++i) in[i] = address(p.in[i], args);
      for (size_t i = 0; i < p.out.size(); ++i) out[i] = const_cast<void*>(address(p.out[i], args));
      p.kernel->run(
          {{in, p.in.size()}, {out, p.out.size()}, offset(args.scratch, values_bytes_), args.random});
    }
    for (size_t i = 0; i < copies_.size(); ++i)
      if (copy_bytes_[i])
        std::copy_n(static_cast<const std::byte*>(address(copy_from_[i], args)), copy_bytes_[i],
                    static_cast<std::byte*>(args.out[copies_[i].second]));
  }

 private:
  // The value whose bytes v names (through views).
  ir::ValueId root(ir::ValueId v) const {
    while (body_[v].producer && is_view(body_[body_[v].producer])) v = body_[body_[v].producer].inputs[0];
    return v;
  }
  static const void* address(const Location& l, const RunArgs& args) {
    switch (l.kind) {
      case Location::input:
        return args.in[static_cast<size_t>(l.index)];
      case Location::output:
        return args.out[static_cast<size_t>(l.index)];
      case Location::scratch:
        return offset(args.scratch, l.index);
      case Location::constant:
        return l.value.data();
      case Location::none:
        break;
    }
    return nullptr;
  }
  TensorSpec spec(ir::ValueId v) const {
    for (size_t i = 0; i < body_.inputs.size(); ++i)
      if (body_.inputs[i] == v) return outer_.inputs[i];
    const ir::Type& t = body_.type(v);
    return {t.dtype, pelton::eval(t.shape, outer_.symbols), t.layout};
  }
  Tensor constant(ir::ValueId v) const {
    const ir::ValueId r = root(v);
    for (size_t i = 0; i < body_.inputs.size(); ++i)
      if (body_.inputs[i] == r && i < outer_.constants.size() && outer_.constants[i].defined())
        return r == v ? outer_.constants[i] : outer_.constants[i].reshaped(spec(v).dims);
    const Tensor* t = body_.constant(r);
    return t ? (r == v ? *t : t->reshaped(spec(v).dims)) : Tensor();
  }
  Location place(ir::ValueId v) {
    Location& l = where_[root(v).index];
    if (l.kind == Location::none) {
      l = {Location::scratch, scratch_, {}};
      scratch_ += align64(spec(root(v)).bytes());
    }
    return l;
  }
  Instance instance_of(const ir::Graph& g, ir::NodeId id, const std::vector<ir::ValueId>& in,
                       const std::vector<ir::ValueId>& out) const {
    Instance i{g, id, {}, {}, {}, outer_.symbols, outer_.threads};
    for (ir::ValueId v : in) {
      i.inputs.push_back(v ? spec(v) : TensorSpec());
      i.constants.push_back(v ? constant(v) : Tensor());
    }
    for (ir::ValueId v : out) i.outputs.push_back(spec(v));
    return i;
  }
  void add_part(std::unique_ptr<Kernel> kernel, const std::vector<ir::ValueId>& in,
                const std::vector<ir::ValueId>& out) {
    Part p;
    p.kernel = std::move(kernel);
    for (ir::ValueId v : in) p.in.push_back(v ? place(v) : Location());
    for (ir::ValueId v : out) p.out.push_back(place(v));
    PELTON_CHECK(p.in.size() <= 64 && p.out.size() <= 64, "operands of a body node");
    parts_.push_back(std::move(p));
  }
  void add_node(ir::NodeId id) {
    const ir::Node& n = body_[id];
    if (n.is("constant") || is_view(n)) return;
    std::string why;
    const Implementation* item = implementation_of(body_, id, target_, &why);
    PELTON_CHECK(item, body_.describe(id), ": ", why);
    const Instance instance = instance_of(body_, id, n.inputs, n.outputs);
    add_part(item->prepare(instance, target_), n.inputs, n.outputs);
  }
  // [contraction, tile program of all else], if the body has that form.
  bool split_by_contraction() {
    ir::NodeId main;
    Region rest{body_, {}, body_.inputs, body_.outputs};
    for (ir::NodeId id : body_.order()) {
      const bool contraction =
          body_[id].is("conv") || body_[id].is("conv_transpose") || body_[id].is("matmul");
      if (contraction && main) return false;
      if (contraction)
        main = id;
      else
        rest.nodes.push_back(id);
    }
    if (!main || rest.nodes.empty()) return false;
    for (ir::ValueId v : body_[main].inputs)
      if (v && where_[root(v).index].kind != Location::input &&
          where_[root(v).index].kind != Location::constant)
        return false;
    const ir::ValueId sum = body_[main].outputs[0];
    if (body_.is_output(sum)) return false;
    rest.inputs.push_back(sum);
    if (rest.inputs.size() + rest.outputs.size() > 48 || !analyse(rest).reason.empty()) return false;
    add_node(main);
    const Instance instance = instance_of(outer_.graph, outer_.id, rest.inputs, rest.outputs);
    Program program = compile_program(rest, instance, target_);
    const int64_t scratch = program.scratch_bytes();
    add_part(make_kernel([p = std::move(program)](const RunArgs& args) { p.run(args); }, scratch),
             rest.inputs, rest.outputs);
    return true;
  }

  const Instance& outer_;  // during construction only
  const ir::Graph& body_;  // likewise
  device::Target target_;
  std::vector<Location> where_;  // by value index
  std::vector<Part> parts_;
  std::vector<std::pair<ir::ValueId, size_t>> copies_;
  std::vector<Location> copy_from_;
  std::vector<int64_t> copy_bytes_;
  int64_t scratch_ = 0, values_bytes_ = 0;
};

std::string refuse(const ir::Graph& graph, ir::NodeId node, const device::Target& target) {
  const ir::Graph& body = graph[node].get_graph("body");
  if (!body.slots.empty()) return "the body has state";
  // The parts read and write the layouts of the body's own types.
  auto other_layout = [&](ir::ValueId outer, ir::ValueId inner) {
    return outer && graph.type(outer).layout != body.type(inner).layout;
  };
  for (size_t i = 0; i < body.inputs.size(); ++i)
    if (ir::ValueId v = graph[node].inputs[i]; other_layout(v, body.inputs[i]))
      return cat("takes ", graph.type(v).str(), ", the body ", body.type(body.inputs[i]).str());
  for (size_t i = 0; i < body.outputs.size(); ++i)
    if (ir::ValueId v = graph[node].outputs[i]; other_layout(v, body.outputs[i]))
      return cat("yields ", graph.type(v).str(), ", the body ", body.type(body.outputs[i]).str());
  for (ir::NodeId id : body.order()) {
    const ir::Node& n = body[id];
    if (n.is("constant") || is_view(n)) continue;
    if (n.is("fused")) return "the body has a fused node";
    if (n.inputs.size() > 60 || n.outputs.size() > 60) return cat(n.op->name, " has too many operands");
    std::string why = "no implementation";
    if (!implementation_of(body, id, target, &why)) return cat(body.describe(id), ": ", why);
  }
  return {};
}

}  // namespace

std::unique_ptr<Kernel> prepare_body(const Instance& instance, const device::Target& target) {
  return std::make_unique<BodyKernel>(instance, target);
}

std::unique_ptr<Kernel> prepare_fallback(const Instance& instance, const device::Target& target) {
  for (const Tensor& t : instance.constants)
    if (t.defined()) runtime::LateWeights::instance().ready(t.data());
  if (instance.node().is("fused")) return prepare_body(instance, target);
  const std::string why = refuse_own_contraction(instance.graph, instance.id);
  if (!why.empty())
    fail(ErrorCode::unsupported_op, cat("no CPU kernel: ", why), instance.graph.describe(instance.id));
  return prepare_own_contraction(instance, target);
}

void add_body(Registry& r) {
  r.add({"cpu.body", {"fused"}, refuse, prepare_body});
}

}  // namespace pelton::backend::cpu
