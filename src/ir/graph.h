// SPDX-License-Identifier: Apache-2.0
// The graph: nodes and single-assignment values in arenas, addressed by index handles that stay valid until
// compact(). Sub-graphs (If, Loop, fused groups) are attributes and closed: whatever they use comes in
// through their inputs. Changing a graph keeps use lists up to date; types are the business of ir/infer.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/attr.h"
#include "ir/type.h"

namespace pelton::ir {

struct OpDef;

template <class Tag>
struct Handle {
  uint32_t index = UINT32_MAX;
  explicit operator bool() const { return index != UINT32_MAX; }
  bool operator==(const Handle&) const = default;
  auto operator<=>(const Handle&) const = default;
};
using ValueId = Handle<struct ValueTag>;  // none: an optional input that is absent
using NodeId = Handle<struct NodeTag>;

struct Use {
  NodeId user;
  uint32_t input;  // index in the user's inputs
  bool operator==(const Use&) const = default;
};

// Symbolic contents of a small integer tensor (rank 0 or 1, at most 64 elements), row-major.
using Contents = std::vector<Dim>;

struct Value {
  Type type;
  NodeId producer;      // none: a graph input or the old value of a state slot
  uint32_t result = 0;  // index in the producer's outputs
  std::string name;     // may be empty; unique in the graph otherwise
  std::optional<Contents> contents;
  std::vector<Use> uses;  // graph outputs and slot writes are not counted
};

struct Node {
  const OpDef* op = nullptr;
  std::vector<ValueId> inputs, outputs;
  Attrs attrs;             // never holds an attribute at its default value
  std::string name;        // for people: the ONNX node, the layer path
  uint64_t stable_id = 0;  // survives passes; counter of the random generator
  bool alive = true;

  bool is(std::string_view op_name) const;
  // Attribute by name, or the op's default; asking for one that the op does not declare is a bug.
  const Attr& attr(std::string_view name) const;
  bool has_attr(std::string_view name) const { return attrs.find(name) != attrs.end(); }
  int64_t get_int(std::string_view name) const { return std::get<int64_t>(attr(name)); }
  double get_real(std::string_view name) const { return std::get<double>(attr(name)); }
  bool get_bool(std::string_view name) const { return std::get<bool>(attr(name)); }
  const std::string& get_text(std::string_view name) const { return std::get<std::string>(attr(name)); }
  DType get_dtype(std::string_view name) const { return std::get<DType>(attr(name)); }
  const Ints& get_ints(std::string_view name) const { return std::get<Ints>(attr(name)); }
  const Floats& get_floats(std::string_view name) const { return std::get<Floats>(attr(name)); }
  const Strings& get_strings(std::string_view name) const { return std::get<Strings>(attr(name)); }
  const Shape& get_dims(std::string_view name) const { return std::get<Shape>(attr(name)); }
  const Tensor& get_tensor(std::string_view name) const { return std::get<Tensor>(attr(name)); }
  const Graph& get_graph(std::string_view name) const { return *std::get<GraphPtr>(attr(name)); }
};

enum class SlotKind : uint8_t { parameter, optimizer, cache, statistic, counter };
std::string_view name(SlotKind kind);

// State that outlives a run. A run reads the old value and, if `next` is set, stores the new one.
struct Slot {
  std::string name;
  SlotKind kind = SlotKind::parameter;
  Type type;
  Tensor initial;  // may be undefined: zeros
  ValueId old_value, next;
  std::string tied_to;  // name of the slot whose storage this one shares
};

// Output `output` uses the storage of input `input`: always (must; the input is donated) or if convenient.
struct Alias {
  uint32_t output, input;
  bool must;
};

// Facts about symbols. A check must hold or the run is refused; a guard was assumed by a pass and a run that
// breaks it takes the guard-free variant.
struct Fact {
  enum class Relation : uint8_t { equal, not_equal, at_most, divisible } relation = Relation::equal;
  Dim left, right;
  std::string reason;  // node or pass that needs it
  bool holds(const SymbolValues& values) const;
  std::string str() const;  // "N == M", "N <= 64", "N % 8 == 0"
};

// Symbols of a graph and all its sub-graphs.
struct SymbolTable {
  SymbolRanges ranges;
  uint64_t next_fresh = 0;
};

class Graph {
 public:
  explicit Graph(std::string name = "main");
  Graph(const Graph&);  // deep in everything but tensors and sub-graphs
  Graph& operator=(const Graph&);
  Graph(Graph&&) noexcept = default;
  Graph& operator=(Graph&&) noexcept = default;

  std::string name;
  std::vector<ValueId> inputs, outputs;
  // Names of the outputs as callers know them; passes never change them. May be shorter than outputs or hold
  // empty names: then the value's own name serves. Read through output_name().
  std::vector<std::string> output_names;
  std::vector<Slot> slots;
  std::vector<Alias> aliases;
  std::vector<Fact> checks, guards;
  std::shared_ptr<SymbolTable> symbols;  // shared with sub-graphs

  ValueId add_input(Type type, std::string value_name = {});
  void add_output(ValueId value, std::string output_name = {});
  const std::string& output_name(size_t index) const;
  ValueId add_slot(Slot slot);  // returns the old value
  // Appends (or inserts before `at`); output values get default types until inferred.
  NodeId add_node(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, size_t output_count,
                  std::string node_name = {}, NodeId at = {});
  ValueId add_node_output(NodeId node);  // one more result, its type left to inference
  void remove(NodeId node);              // its outputs must be unused
  void set_input(NodeId node, size_t index, ValueId value);
  void add_node_input(NodeId node, ValueId value);
  void resize_inputs(NodeId node, size_t count);  // drops or adds absent inputs at the end
  // Every use of `from` (nodes, graph outputs, slot writes) becomes `to`; `to` takes over the name if it has
  // none.
  void replace_uses(ValueId from, ValueId to);

  const Node& operator[](NodeId id) const { return nodes_[id.index]; }
  const Value& operator[](ValueId id) const { return values_[id.index]; }
  Node& edit(NodeId id) { return nodes_[id.index]; }  // inputs and outputs only through the graph
  Value& edit(ValueId id) { return values_[id.index]; }
  const Type& type(ValueId id) const { return values_[id.index].type; }
  const OpDef& op(NodeId id) const { return *nodes_[id.index].op; }

  const std::vector<NodeId>& order() const { return order_; }  // a topological order of the living nodes
  size_t value_count() const { return values_.size(); }        // dead ones included
  size_t node_count() const { return order_.size(); }
  bool is_output(ValueId v) const;  // graph output or slot write
  bool unused(ValueId v) const { return (*this)[v].uses.empty() && !is_output(v); }
  // The tensor of a `constant` node, or null.
  const Tensor* constant(ValueId v) const;
  // Re-establishes a topological order, keeping the present one where it can; a cycle is an internal error
  // naming a node on it.
  void sort();
  // Drops dead nodes and values; invalidates every handle.
  void compact();
  std::string describe(NodeId node) const;  // "add 'conv1/bias'" for messages
  std::string label(ValueId value) const;   // "%x" or "%12"

 private:
  friend class TextParser;
  friend struct BinaryForm;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<NodeId> order_;
  uint64_t next_stable_id_ = 1;
  ValueId new_value(Type type, std::string value_name);
};

}  // namespace pelton::ir
