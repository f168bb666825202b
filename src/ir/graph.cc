// SPDX-License-Identifier: Apache-2.0
#include "ir/graph.h"

#include <algorithm>

#include "ir/op.h"

namespace pelton::ir {

std::string_view name(SlotKind kind) {
  static constexpr std::string_view names[] = {"parameter", "optimizer", "cache", "statistic", "counter"};
  return names[static_cast<size_t>(kind)];
}

bool Node::is(std::string_view op_name) const {
  return op->name == op_name;
}

const Attr& Node::attr(std::string_view attr_name) const {
  if (auto it = attrs.find(attr_name); it != attrs.end()) return it->second;
  const AttrDef* def = op->find_attr(attr_name);
  PELTON_CHECK(def, "op ", op->name, " has no attribute '", attr_name, "'");
  PELTON_CHECK(def->default_value, "attribute '", attr_name, "' of ", op->name, " '", name, "' is missing");
  return *def->default_value;
}

Graph::Graph(std::string graph_name)
    : name(std::move(graph_name)), symbols(std::make_shared<SymbolTable>()) {}
Graph::Graph(const Graph& o) {
  *this = o;
}
Graph& Graph::operator=(const Graph& o) {
  if (this == &o) return *this;
  name = o.name;
  inputs = o.inputs;
  outputs = o.outputs;
  output_names = o.output_names;
  slots = o.slots;
  aliases = o.aliases;
  checks = o.checks;
  guards = o.guards;
  symbols = std::make_shared<SymbolTable>(*o.symbols);
  nodes_ = o.nodes_;
  values_ = o.values_;
  order_ = o.order_;
  next_stable_id_ = o.next_stable_id_;
  return *this;
}

ValueId Graph::new_value(Type type, std::string value_name) {
  PELTON_CHECK(values_.size() < UINT32_MAX - 1);
  values_.push_back(Value{std::move(type), {}, 0, std::move(value_name), std::nullopt, {}});
  return ValueId{static_cast<uint32_t>(values_.size() - 1)};
}

ValueId Graph::add_input(Type type, std::string value_name) {
  inputs.push_back(new_value(std::move(type), std::move(value_name)));
  return inputs.back();
}

void Graph::add_output(ValueId value, std::string output_name) {
  output_names.resize(outputs.size());
  outputs.push_back(value);
  output_names.push_back(std::move(output_name));
}

const std::string& Graph::output_name(size_t index) const {
  if (index < output_names.size() && !output_names[index].empty()) return output_names[index];
  return values_[outputs[index].index].name;
}

ValueId Graph::add_slot(Slot slot) {
  slot.old_value = new_value(slot.type, slot.name);
  slots.push_back(std::move(slot));
  return slots.back().old_value;
}

NodeId Graph::add_node(const OpDef& op, std::vector<ValueId> node_inputs, Attrs attrs, size_t output_count,
                       std::string node_name, NodeId at) {
  NodeId id{static_cast<uint32_t>(nodes_.size())};
  Node node;
  node.op = &op;
  node.inputs = std::move(node_inputs);
  node.attrs = std::move(attrs);
  std::erase_if(node.attrs, [&](const auto& item) {
    const AttrDef* def = op.find_attr(item.first);
    return def && def->default_value && equal(*def->default_value, item.second);
  });
  node.name = std::move(node_name);
  node.stable_id = next_stable_id_++;
  for (size_t i = 0; i < output_count; ++i) {
    ValueId v = new_value({}, {});
    values_[v.index].producer = id;
    values_[v.index].result = static_cast<uint32_t>(i);
    node.outputs.push_back(v);
  }
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i]) values_[node.inputs[i].index].uses.push_back({id, static_cast<uint32_t>(i)});
  nodes_.push_back(std::move(node));
  if (at)
    order_.insert(std::find(order_.begin(), order_.end(), at), id);
  else
    order_.push_back(id);
  return id;
}

ValueId Graph::add_node_output(NodeId id) {
  ValueId v = new_value({}, {});
  values_[v.index].producer = id;
  values_[v.index].result = static_cast<uint32_t>(nodes_[id.index].outputs.size());
  nodes_[id.index].outputs.push_back(v);
  return v;
}

void Graph::remove(NodeId id) {
  Node& node = nodes_[id.index];
  for (ValueId v : node.outputs)
    PELTON_CHECK(unused(v), describe(id), " is removed while ", label(v), " is used");
  resize_inputs(id, 0);
  node.alive = false;
  node.attrs.clear();
  order_.erase(std::find(order_.begin(), order_.end(), id));
}

void Graph::set_input(NodeId id, size_t index, ValueId value) {
  ValueId& slot = nodes_[id.index].inputs[index];
  Use use{id, static_cast<uint32_t>(index)};
  if (slot) std::erase(values_[slot.index].uses, use);
  slot = value;
  if (value) values_[value.index].uses.push_back(use);
}

void Graph::add_node_input(NodeId id, ValueId value) {
  nodes_[id.index].inputs.emplace_back();
  set_input(id, nodes_[id.index].inputs.size() - 1, value);
}

void Graph::resize_inputs(NodeId id, size_t count) {
  Node& node = nodes_[id.index];
  for (size_t i = count; i < node.inputs.size(); ++i) set_input(id, i, {});
  node.inputs.resize(count);
}

void Graph::replace_uses(ValueId from, ValueId to) {
  if (from == to) return;
  std::vector<Use> uses = values_[from.index].uses;
  for (Use u : uses) set_input(u.user, u.input, to);
  for (ValueId& v : outputs)
    if (v == from) v = to;
  for (Slot& s : slots)
    if (s.next == from) s.next = to;
  Value &a = values_[from.index], &b = values_[to.index];
  if (b.name.empty() && b.producer) std::swap(a.name, b.name);
}

bool Graph::is_output(ValueId v) const {
  return std::find(outputs.begin(), outputs.end(), v) != outputs.end() ||
         std::any_of(slots.begin(), slots.end(), [&](const Slot& s) { return s.next == v; });
}

const Tensor* Graph::constant(ValueId v) const {
  if (!v || !(*this)[v].producer) return nullptr;
  const Node& n = (*this)[(*this)[v].producer];
  return n.is("constant") ? &n.get_tensor("value") : nullptr;
}

void Graph::sort() {
  // Depth-first from each node in the present order keeps that order wherever it is valid already.
  std::vector<uint8_t> state(nodes_.size(), 0);  // 1: on the stack, 2: placed
  std::vector<NodeId> sorted;
  sorted.reserve(order_.size());
  std::vector<std::pair<NodeId, size_t>> stack;
  for (NodeId root : order_) {
    if (state[root.index]) continue;
    stack.emplace_back(root, 0);
    state[root.index] = 1;
    while (!stack.empty()) {
      auto& [id, next] = stack.back();
      const Node& node = nodes_[id.index];
      if (next == node.inputs.size()) {
        state[id.index] = 2;
        sorted.push_back(id);
        stack.pop_back();
        continue;
      }
      ValueId v = node.inputs[next++];
      NodeId producer = v ? values_[v.index].producer : NodeId{};
      if (!producer || state[producer.index] == 2) continue;
      PELTON_CHECK(state[producer.index] == 0, "the graph has a cycle through ", describe(producer));
      PELTON_CHECK(nodes_[producer.index].alive, describe(id), " uses a removed node");
      state[producer.index] = 1;
      stack.emplace_back(producer, 0);
    }
  }
  order_ = std::move(sorted);
}

void Graph::compact() {
  std::vector<uint32_t> node_map(nodes_.size(), UINT32_MAX), value_map(values_.size(), UINT32_MAX);
  std::vector<Node> nodes;
  std::vector<Value> values;
  auto keep = [&](ValueId v) {
    value_map[v.index] = static_cast<uint32_t>(values.size());
    values.push_back(std::move(values_[v.index]));
  };
  for (ValueId v : inputs) keep(v);
  for (const Slot& s : slots) keep(s.old_value);
  for (NodeId id : order_) {
    node_map[id.index] = static_cast<uint32_t>(nodes.size());
    for (ValueId v : nodes_[id.index].outputs) keep(v);
    nodes.push_back(std::move(nodes_[id.index]));
  }
  auto moved = [&](ValueId& v) {
    if (v) v.index = value_map[v.index];
  };
  for (Node& n : nodes) {
    for (ValueId& v : n.inputs) moved(v);
    for (ValueId& v : n.outputs) moved(v);
  }
  for (Value& v : values) {
    if (v.producer) v.producer.index = node_map[v.producer.index];
    for (Use& u : v.uses) u.user.index = node_map[u.user.index];
  }
  for (ValueId& v : inputs) moved(v);
  for (ValueId& v : outputs) moved(v);
  for (Slot& s : slots) {
    moved(s.old_value);
    moved(s.next);
  }
  nodes_ = std::move(nodes);
  values_ = std::move(values);
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = NodeId{static_cast<uint32_t>(i)};
}

std::string Graph::describe(NodeId id) const {
  const Node& n = nodes_[id.index];
  if (!n.name.empty()) return cat(n.op->name, " '", n.name, "'");
  return n.outputs.empty() ? std::string(n.op->name) : cat(n.op->name, " ", label(n.outputs[0]));
}

std::string Graph::label(ValueId v) const {
  if (!v) return "_";
  const std::string& n = values_[v.index].name;
  return n.empty() ? cat("%", v.index) : cat("%", n);
}

}  // namespace pelton::ir
