// SPDX-License-Identifier: Apache-2.0
#include "runtime/region.h"

#include <set>

#include "ir/op.h"
#include "runtime/device_weights.h"
#include "runtime/late_weights.h"

namespace pelton::runtime {

using namespace ir;

namespace {

void collect(const Shape& shape, std::set<std::string>& into) {
  for (const Dim& d : shape) d.collect_symbols(into);
}

// Symbols that the kernel of a node may depend on: those of its operands, results and attributes.
std::set<std::string> symbols_of(const Graph& graph, NodeId id) {
  std::set<std::string> out;
  const ir::Node& n = graph[id];
  for (ValueId v : n.inputs)
    if (v) collect(graph.type(v).shape, out);
  for (ValueId v : n.outputs) collect(graph.type(v).shape, out);
  for (const auto& [key, value] : n.attrs)
    if (auto dims = std::get_if<Shape>(&value)) collect(*dims, out);
  return out;
}

// Not text, and of a known rank (an element of a sequence may be of any).
bool is_plain_tensor(const Type& t) {
  return t.is_tensor() && t.ranked && t.dtype != DType::string;
}

}  // namespace

Tensor aligned(const Tensor& tensor) {
  if (tensor.dtype() == DType::string || tensor.count() == 0) return tensor;
  auto address = reinterpret_cast<uintptr_t>(tensor.data());
  return address % kArenaAlignment == 0 ? tensor : tensor.clone();
}

Region::Region(const Graph& graph, const std::vector<Choice>& choices, const backend::Registry& registry,
               const device::Target& target, const RegionOptions& options, int depth)
    : graph_(graph),
      registry_(registry),
      target_(target),
      host_(device::host_of(target)),
      options_(options),
      depth_(depth) {
  const auto& order = graph.order();
  PELTON_CHECK(choices.size() == order.size(), "graph '", graph.name, "' has ", order.size(), " nodes and ",
               choices.size(), " choices");
  for (size_t i = 0; i < order.size(); ++i) {
    const Choice& choice = choices[i];
    Node node;
    node.id = order[i];
    node.implementation = choice.implementation;
    if (choice.implementation != kReference && choice.implementation != kNothing) {
      node.kernel = registry.find(choice.implementation);
      PELTON_CHECK(node.kernel, "no implementation '", choice.implementation, "'");
      node.on_device = options.device && node.kernel->device == target.kind;
      draws_on_device_ |= node.on_device && graph.op(order[i]).effects == Effects::random;
    }
    for (const std::string& s : symbols_of(graph, order[i])) node.symbols.push_back(s);
    nodes_.push_back(std::move(node));
    RegionOptions inner_options = options;  // control flow runs on the host, its sub-graphs with it
    inner_options.device = nullptr;
    for (const BodyChoices& body : choice.bodies) {
      const Graph* inner = &graph[order[i]].get_graph(body.attr);
      if (!bodies_.count(inner))
        bodies_.emplace(
            inner, std::make_unique<Region>(*inner, body.choices, registry, host_, inner_options, depth + 1));
    }
  }
  cut_into_segments();
  place_values();
  in_place_.assign(graph.slots.size(), false);
  if (options_.device) place_state();
  programs_.resize(segments_.size());
  kernels_.resize(nodes_.size());
}

Region::~Region() = default;

const Region* Region::body(const Graph* graph) const {
  auto it = bodies_.find(graph);
  return it == bodies_.end() ? nullptr : it->second.get();
}

void Region::cut_into_segments() {
  std::set<std::string> known;
  // Symbols of an outer graph have their sizes before this region runs; only results can bring new ones.
  std::set<std::string> brought;
  auto collect_results = [&](NodeId id, std::set<std::string>& into) {
    for (ValueId v : graph_[id].outputs) collect(graph_.type(v).shape, into);
  };
  for (ValueId v : graph_.inputs) collect(graph_.type(v).shape, known);
  for (const Slot& s : graph_.slots) collect(s.type.shape, known);
  for (const Node& n : nodes_)
    if (size_depends_on_data(graph_, n.id)) collect_results(n.id, brought);
  Segment segment;
  std::set<std::string> symbols;
  auto close = [&](uint32_t end) {
    segment.last = end;
    segment.symbols.assign(symbols.begin(), symbols.end());
    segments_.push_back(segment);
    segment = {end, end, {}};
    symbols.clear();
  };
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    Node& n = nodes_[i];
    std::set<std::string> fresh;
    collect_results(n.id, fresh);
    for (const std::string& s : fresh)
      if (brought.count(s) && !known.count(s)) {
        n.cut = true;
        known.insert(s);
      }
    PELTON_CHECK(!n.cut || !n.kernel, graph_.describe(n.id), " has a kernel but a size that depends on data");
    // Reference functions read attributes at the sizes of the run; a cut does not know those of its results.
    if (n.kernel) symbols.insert(n.symbols.begin(), n.symbols.end());
    for (ValueId v : graph_[n.id].inputs)
      if (v) collect(graph_.type(v).shape, symbols);
    if (!n.cut) collect_results(n.id, symbols);
    if (n.cut) close(i + 1);
  }
  if (segment.first < nodes_.size() || segments_.empty()) close(static_cast<uint32_t>(nodes_.size()));
}

void Region::place_values() {
  values_.resize(graph_.value_count());
  std::vector<uint32_t> made_in(graph_.value_count(), 0);
  auto set = [&](ValueId v, Place place, size_t index) {
    values_[v.index] = {v, place, static_cast<uint32_t>(index), is_plain_tensor(graph_.type(v)), 0};
  };
  for (size_t i = 0; i < graph_.inputs.size(); ++i) set(graph_.inputs[i], Place::input, i);
  for (size_t i = 0; i < graph_.slots.size(); ++i) set(graph_.slots[i].old_value, Place::slot, i);
  std::vector<bool> escapes(graph_.value_count(), false);  // by root
  for (uint32_t s = 0; s < segments_.size(); ++s) {
    for (uint32_t i = segments_[s].first; i < segments_[s].last; ++i) {
      const Node& node = nodes_[i];
      const ir::Node& n = graph_[node.id];
      for (ValueId v : n.inputs) {
        if (!v) continue;
        ValueId root = values_[v.index].root;
        if (made_in[root.index] != s) escapes[root.index] = true;
        values_[root.index].last_segment = s;
        values_[root.index].device_reads |= node.on_device;
      }
      for (ValueId v : n.outputs) {
        made_in[v.index] = s;
        if (node.implementation == kNothing && n.is("constant")) {
          set(v, Place::constant, constants_.size());
          constants_.push_back(aligned(n.get_tensor("value")));
        } else if (node.implementation == kNothing) {
          values_[v.index] = values_[values_[n.inputs[0].index].root.index];
        } else {
          set(v, Place::arena, v.index);
          values_[v.index].sized = is_plain_tensor(graph_.type(v)) && !node.cut;
          values_[v.index].last_segment = s;
          if (!values_[v.index].sized) values_[v.index].place = Place::host;
        }
      }
    }
  }
  auto keep = [&](ValueId v) {
    ValueId root = values_[v.index].root;
    if (values_[root.index].place == Place::constant)
      LateWeights::instance().ready(constants_[values_[root.index].index].data());
    escapes[root.index] = true;
    values_[root.index].last_segment = static_cast<uint32_t>(segments_.size());
  };
  for (ValueId v : graph_.outputs) keep(v);
  for (const Slot& s : graph_.slots)
    if (s.next) keep(s.next);
  released_.resize(segments_.size());
  for (const Node& node : nodes_)
    for (ValueId v : graph_[node.id].outputs) {
      Value& value = values_[v.index];
      if (value.root != v) continue;
      if (value.place == Place::arena && escapes[v.index]) value.place = Place::host;
      if (value.place == Place::host && value.last_segment < segments_.size())
        released_[value.last_segment].push_back(v);
    }
  for (Value& value : values_)
    if (value.root && value.place == Place::arena) value.place = values_[value.root.index].place;
  device_constants_.resize(constants_.size());
}

int64_t Region::constant_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& t : constants_) bytes += t.bytes();
  for (const auto& [graph, body] : bodies_) bytes += body->constant_bytes();
  return bytes;
}

void* Region::device_constant(uint32_t index) const {
  const Tensor& t = constants_[index];
  LateWeights::instance().ready(t.data());
  std::lock_guard lock(mutex_);
  std::shared_ptr<const device::Memory>& memory = device_constants_[index];
  if (!memory) memory = share_on_device(options_.device, t);
  return memory->get();
}

int64_t Region::device_constant_bytes() const {
  std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& memory : device_constants_)
    if (memory) bytes += memory->bytes();
  return bytes;
}

}  // namespace pelton::runtime
