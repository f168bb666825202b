// SPDX-License-Identifier: Apache-2.0
#include "runtime/program.h"

#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "device/artifacts.h"
#include "ir/op.h"
#include "ir/reads.h"
#include "runtime/arena.h"
#include "runtime/lanes.h"
#include "runtime/late_weights.h"
#include "runtime/packed_weights.h"
#include "runtime/region.h"

namespace pelton::runtime {

using namespace ir;

namespace {

constexpr int64_t kForgottenBytes = 64 << 10;

bool has_size(const Type& type, const SymbolValues& symbols) {
  if (!type.is_tensor() || !type.ranked) return false;
  std::set<std::string> names;
  for (const Dim& d : type.shape) d.collect_symbols(names);
  return std::all_of(names.begin(), names.end(), [&](const std::string& s) { return symbols.count(s) != 0; });
}

// What kernels lay out beforehand grows with the results: sizes that no memory holds are refused first. A
// host may have more than its memory, by swapping.
void check_results_fit(const backend::Instance& instance, const device::Target& target) {
  const int64_t most = target.kind == device::Kind::cpu ? 4 * target.memory_bytes : target.memory_bytes;
  for (size_t i = 0; most > 0 && i < instance.outputs.size(); ++i)
    if (const int64_t bytes = instance.outputs[i].bytes(); bytes > most)
      fail(ErrorCode::out_of_memory,
           cat("result ", i, " of shape ", instance.outputs[i].dims, " takes ", bytes, " bytes, there are ",
               target.memory_bytes, " of memory"),
           instance.graph.describe(instance.id), "use smaller inputs");
}

}  // namespace

Ref Region::ref(ValueId v, const SymbolValues& symbols) const {
  Ref r;
  if (!v) return r;
  r.value = v;
  const Type& type = graph_.type(v);
  if (type.kind == TypeKind::token) return r;
  const Value& value = values_[v.index];
  r.place = value.place;
  r.index = value.index;
  if (!has_size(type, symbols)) return r;  // the results of a cut
  r.dims = eval(type.shape, symbols);
  if (type.dtype != DType::string) r.bytes = physical_bytes(type, r.dims);
  return r;
}

std::shared_ptr<const backend::Kernel> Region::kernel(size_t position, const SymbolValues& symbols) const {
  const Node& node = nodes_[position];
  Key key;
  for (const std::string& s : node.symbols) {
    auto it = symbols.find(s);
    key.push_back(it == symbols.end() ? INT64_MIN : it->second);
  }
  {
    std::lock_guard lock(mutex_);
    auto& kept = kernels_[position];
    std::erase_if(kept, [](const auto& item) { return item.second.expired(); });
    for (const auto& [k, weak] : kept)
      if (k == key)
        if (auto kernel = weak.lock()) return kernel;
  }
  const ir::Node& n = graph_[node.id];
  const device::Target& target = node.on_device ? target_ : host_;
  if (node.on_device) options_.device->activate();
  require_reads(graph_, node.id, symbols);
  backend::Instance instance{graph_, node.id, {}, {}, {}, symbols, target.threads};
  auto spec = [&](ValueId v) {
    const Type& t = graph_.type(v);
    if (!t.is_tensor()) return backend::TensorSpec{};
    return backend::TensorSpec{t.dtype, eval(t.shape, symbols), t.layout};
  };
  for (ValueId v : n.inputs) {
    instance.inputs.push_back(v ? spec(v) : backend::TensorSpec{});
    const Value* value = v ? &values_[v.index] : nullptr;
    bool fixed = value && value->place == Place::constant;
    Tensor constant = fixed ? constants_[value->index] : Tensor();
    // A view of a constant is the same bytes under another shape.
    if (fixed && value->root != v)
      constant = Tensor::borrow(graph_.type(v).dtype, instance.inputs.back().dims, constant.data(),
                                std::make_shared<Tensor>(constant));
    instance.constants.push_back(std::move(constant));
  }
  for (ValueId v : n.outputs) instance.outputs.push_back(spec(v));
  check_results_fit(instance, target);
  const device::ArtifactScope artifacts(options_.artifacts, options_.by_timing);
  const auto ready = [&](size_t input) {
    if (const Tensor& t = instance.constants[input]; t.defined()) LateWeights::instance().ready(t.data());
  };
  if (!PackedWeights::instance().only_packs(node.kernel->name))
    for (size_t i = 0; i < n.inputs.size(); ++i) ready(i);
  std::shared_ptr<const backend::Kernel> built =
      with_place(graph_.describe(node.id), [&] { return node.kernel->prepare(instance, target); });
  PELTON_CHECK(built, node.kernel->name, " prepared nothing for ", graph_.describe(node.id));
  for (size_t i = 0; i < n.inputs.size(); ++i)
    if (built->reads(i)) ready(i);
  if (built->packed_bytes() > 0) forget_packed(node.id);
  std::lock_guard lock(mutex_);
  kernels_[position].emplace_back(std::move(key), built);
  return built;
}

// Weights that only this node reads and that its kernel keeps in an order of its own need not stay in memory
// twice; a kernel for other sizes reads them from the file again.
void Region::forget_packed(NodeId id) const {
  for (ValueId v : graph_[id].inputs) {
    if (!v || values_[v.index].place != Place::constant || graph_[v].uses.size() > 1) continue;
    const Tensor& t = constants_[values_[v.index].index];
    if (t.bytes() >= kForgottenBytes)
      forget_pages({static_cast<const std::byte*>(t.data()), static_cast<size_t>(t.bytes())});
  }
}

BatchSlices Region::slices_of(const Segment& range, const SymbolValues& symbols) const {
  if (depth_ > 0 || options_.device) return {};
  std::vector<bool> has_kernel, is_nothing;
  for (const Node& node : nodes_) {
    has_kernel.push_back(node.kernel != nullptr);
    is_nothing.push_back(node.implementation == kNothing);
  }
  return choose_slices(graph_, range.first, range.last, symbols, has_kernel, is_nothing);
}

// Operands of sliced steps: those that other steps or the caller see too are whole and move, the others are a
// slice. Operands without items are the same for every slice.
void Region::slice_refs(Program& p, const SymbolValues& of_slice) const {
  std::set<uint32_t> outside;  // roots that steps outside use
  auto each = [&](bool inside, auto&& f) {
    for (size_t s = 0; s < p.steps.size(); ++s) {
      const Step& step = p.steps[s];
      if (p.slices.holds(s) == inside)
        for (uint32_t r = step.first_in; r < step.first_out + step.out_count; ++r)
          if (p.refs[r].value) f(r, values_[p.refs[r].value.index].root.index);
    }
  };
  each(false, [&](uint32_t, uint32_t root) { outside.insert(root); });
  each(true, [&](uint32_t r, uint32_t root) {
    Ref& whole = p.refs[r];
    Ref slice = ref(whole.value, of_slice);
    if (slice.bytes == whole.bytes) return;
    PELTON_CHECK(slice.bytes * p.slices.count == whole.bytes, graph_.label(whole.value), " has ", whole.bytes,
                 " bytes, ", p.slices.count, " slices of it ", slice.bytes, " each");
    if (whole.place == Place::arena && !outside.count(root)) {
      whole = std::move(slice);
    } else {
      whole.slice_bytes = slice.bytes;
      p.slices.moved.push_back(r);
    }
  });
}

std::shared_ptr<const Program> Region::build(size_t segment, const SymbolValues& symbols) const {
  auto p = std::make_shared<Program>();
  const Segment& range = segments_[segment];
  const BatchSlices slices = slices_of(range, symbols);
  SymbolValues of_slice = symbols;
  if (slices.count > 1) of_slice[slices.symbol] = slices.rows;
  p->slices.rows = slices.rows;
  p->slices.count = slices.count;
  for (uint32_t i = range.first; i < range.last; ++i) {
    const Node& node = nodes_[i];
    if (node.implementation == kNothing) continue;
    const ir::Node& n = graph_[node.id];
    const auto number = static_cast<uint32_t>(p->steps.size());
    if (i < slices.first) p->slices.first = number + 1;
    if (i < slices.last) p->slices.last = number + 1;
    Step step;
    step.position = i;
    step.node = node.id;
    step.on_device = node.on_device;
    step.first_in = static_cast<uint32_t>(p->refs.size());
    step.in_count = static_cast<uint32_t>(n.inputs.size());
    for (ValueId v : n.inputs) p->refs.push_back(ref(v, symbols));
    step.first_out = static_cast<uint32_t>(p->refs.size());
    step.out_count = static_cast<uint32_t>(n.outputs.size());
    for (ValueId v : n.outputs) {
      if (values_[v.index].place == Place::host && values_[v.index].sized)
        p->host_results.push_back(static_cast<uint32_t>(p->refs.size()));
      p->refs.push_back(ref(v, symbols));
    }
    p->steps.push_back(step);
  }
  if (slices.count > 1) slice_refs(*p, of_slice);
  // Preparing re-orders weights and generates code: the greater part of loading a plan, and independent work.
  p->kernels.resize(p->steps.size());
  Progress progress("preparing kernels", static_cast<int64_t>(p->steps.size()));
  parallel_for(0, static_cast<int64_t>(p->steps.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      if (nodes_[p->steps[i].position].kernel)
        p->kernels[i] = kernel(p->steps[i].position, p->slices.holds(i) ? of_slice : symbols);
    progress.add(end - begin);
  });
  for (size_t i = 0; i < p->steps.size(); ++i) {
    Step& step = p->steps[i];
    step.kernel = p->kernels[i].get();
    if (!step.kernel) continue;
    step.scratch_bytes = step.kernel->scratch_bytes();
    p->scratch_bytes = std::max(p->scratch_bytes, step.scratch_bytes);
    const auto* stateful = dynamic_cast<const backend::Stateful*>(step.kernel);
    if (stateful && stateful->context_bytes() > 0) step.stateful = stateful;
  }
  for (Step& step : p->steps) {
    if (!step.on_device) continue;
    for (uint32_t i = 0; i < step.in_count; ++i) p->refs[step.first_in + i].read = step.kernel->reads(i);
    step.capturable = step.kernel->capturable();
  }
  for (const Ref& r : p->refs) p->touched_bytes += r.bytes;
  if (options_.device && options_.max_graphs > 0)
    assign_lanes(*p, *this, symbols, options_.least_branch_ns, writes_state_);
  else
    p->order = Order::list(static_cast<int>(p->steps.size()));
  plan_arena(*p, *this);
  if (options_.check_memory) check_memory(*p, *this);
  return p;
}

}  // namespace pelton::runtime
