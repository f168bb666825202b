// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/control/body.h"

#include <algorithm>

#include "backend/cuda.h"
#include "ir/op.h"
#include "ir/reads.h"
#include "runtime/late_weights.h"
#include "runtime/memory_plan.h"
#include "runtime/plan.h"

namespace pelton::backend::cuda {
namespace {

using namespace ir;

// What bodies choose from: the implementations of this back end, control flow among them.
const Registry& own_registry() {
  static const Registry* const registry = [] {
    auto* r = new Registry;
    register_cuda(*r);
    return r;
  }();
  return *registry;
}

std::string refuse_value(const Graph& g, ValueId v, const Symbols& symbols) {
  const Type& t = g.type(v);
  if (!t.is_tensor() || t.dtype == DType::string || is_sub_byte(t.dtype) || !t.ranked ||
      !known(t.shape, symbols))
    return cat("graph '", g.name, "' has the value ", g.label(v), " of type ", t.str());
  return {};
}

TensorSpec spec_of(const Graph& g, ValueId v) {
  const Type& t = g.type(v);
  return {t.dtype, *as_dims(t.shape), t.layout};
}

}  // namespace

std::string refuse_body(const Graph& body, const device::Target& target, const Symbols& symbols) {
  if (!body.slots.empty()) return cat("graph '", body.name, "' has state");
  if (!body.checks.empty()) return cat("graph '", body.name, "' has sizes that its run checks");
  for (const auto* values : {&body.inputs, &body.outputs})
    for (ValueId v : *values) {
      if (std::string why = refuse_value(body, v, symbols); !why.empty()) return why;
      if (!body.type(v).layout.is_plain()) return cat("graph '", body.name, "' takes or yields a layout");
    }
  for (NodeId id : body.order()) {
    const Node& n = body[id];
    if (n.op->effects != Effects::pure) return cat(body.describe(id), " has effects");
    for (const auto& [key, value] : n.attrs)
      if (const auto* dims = std::get_if<Shape>(&value); dims && !known(*dims, symbols))
        return cat(body.describe(id), " has sizes that only running it tells");
    for (ValueId v : n.outputs)
      if (std::string why = refuse_value(body, v, symbols); !why.empty()) return why;
    const runtime::Choice choice = runtime::choose(body, id, own_registry(), target);
    if (choice.implementation == runtime::kNothing) continue;
    const Implementation* found = own_registry().find(choice.implementation);
    if (!found || found->device != device::Kind::cuda)
      return cat(body.describe(id), " has no kernel on the GPU");
  }
  return {};
}

Body::Body(GraphPtr body, const device::Target& target, int threads) : graph_(std::move(body)) {
  const Graph& g = *graph_;
  std::vector<Place> places(g.value_count());
  std::vector<runtime::Block> blocks;
  auto block = [&](int64_t bytes, int writer) {
    blocks.push_back({bytes, writer, {}});
    return blocks.size() - 1;
  };
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    places[g.inputs[i].index].input = static_cast<int>(i);
    places[g.inputs[i].index].bytes = spec_of(g, g.inputs[i]).bytes();
  }
  std::vector<Tensor> constants(g.value_count());
  for (NodeId id : g.order()) {
    const Node& n = g[id];
    const runtime::Choice choice = runtime::choose(g, id, own_registry(), target);
    if (choice.implementation == runtime::kNothing) {
      Place& p = places[n.outputs[0].index];
      if (const Tensor* t = g.constant(n.outputs[0])) {
        runtime::LateWeights::instance().ready(t->data());
        constants[n.outputs[0].index] = *t;
        p.bytes = t->bytes();
        p.constant = static_cast<int>(constants_.size());
        constants_.push_back({*t, {}});
      } else {
        p = places[n.inputs[0].index];
        const Tensor& from = constants[n.inputs[0].index];
        if (from.defined())
          constants[n.outputs[0].index] = from.reshaped(*as_dims(g.type(n.outputs[0]).shape));
      }
      continue;
    }
    const auto number = static_cast<int>(steps_.size());
    Instance instance{g, id, {}, {}, {}, none_, threads};
    Step step;
    for (ValueId v : n.inputs) {
      instance.inputs.push_back(v ? spec_of(g, v) : TensorSpec{});
      instance.constants.push_back(v ? constants[v.index] : Tensor());
      step.in.push_back(v ? places[v.index] : Place{});
      step.in.back().absent = !v;
      if (v && places[v.index].block != SIZE_MAX) blocks[places[v.index].block].readers.push_back(number);
    }
    for (ValueId v : n.outputs) {
      instance.outputs.push_back(spec_of(g, v));
      Place& p = places[v.index];
      p.bytes = instance.outputs.back().bytes();
      p.block = block(p.bytes, number);
      step.out.push_back(p);
    }
    require_reads(g, id, none_);
    // A node that was taken at open sizes may be wrong at these.
    const Implementation* found = own_registry().find(choice.implementation);
    if (!found)
      fail(ErrorCode::bad_shape,
           choice.refusals.empty() ? "cannot run at these sizes" : choice.refusals.back().reason,
           g.describe(id));
    step.kernel = found->prepare(instance, target);
    if (step.kernel->scratch_bytes() > 0) step.scratch = block(step.kernel->scratch_bytes(), number);
    for (size_t i = 0; i < step.in.size(); ++i)
      if (step.kernel->reads(i)) bring(step.in[i]);
    steps_.push_back(std::move(step));
  }
  // Outputs stay until they are taken behind the last step.
  for (ValueId v : g.outputs) {
    outputs_.push_back(places[v.index]);
    bring(outputs_.back());
    if (outputs_.back().block != SIZE_MAX)
      blocks[outputs_.back().block].readers.push_back(static_cast<int>(steps_.size()));
  }
  const runtime::MemoryPlan plan = runtime::plan_memory(
      blocks, runtime::Order::list(static_cast<int>(steps_.size()) + 1), {}, runtime::kDeviceAlignment);
  offsets_ = plan.offsets;
  scratch_bytes_ = plan.bytes;
}

void Body::bring(const Place& place) {
  if (place.constant < 0) return;
  Constant& c = constants_[static_cast<size_t>(place.constant)];
  if (!c.memory) c.memory = shared_packed(c.value, "as it is", [&] { return upload(c.value, "a constant"); });
}

int64_t Body::packed_bytes() const {
  int64_t sum = 0;
  for (const Constant& c : constants_)
    if (c.memory) sum += c.memory->bytes();
  for (const Step& s : steps_) sum += s.kernel->packed_bytes();
  return sum;
}

const void* Body::at(const Place& place, const std::vector<const void*>& inputs, std::byte* scratch) const {
  if (place.absent) return nullptr;
  if (place.input >= 0) return inputs[static_cast<size_t>(place.input)];
  if (place.constant >= 0) {
    const Packed& memory = constants_[static_cast<size_t>(place.constant)].memory;
    return memory ? memory->get() : nullptr;
  }
  return scratch + offsets_[place.block];
}

std::vector<const void*> Body::run(const std::vector<const void*>& inputs, std::byte* scratch,
                                   cudaStream_t stream) const {
  for (const Step& s : steps_) {
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const Place& p : s.in) in.push_back(at(p, inputs, scratch));
    for (const Place& p : s.out) out.push_back(const_cast<void*>(at(p, inputs, scratch)));
    RunArgs args;
    args.in = in;
    args.out = out;
    args.stream = stream;
    if (s.scratch != SIZE_MAX) args.scratch = scratch + offsets_[s.scratch];
    s.kernel->run(args);
  }
  std::vector<const void*> results;
  for (const Place& p : outputs_) results.push_back(at(p, inputs, scratch));
  return results;
}

}  // namespace pelton::backend::cuda
