// SPDX-License-Identifier: Apache-2.0
// The graph of the binary form: its ops, sizes, values and nodes, checked as they are read.
#include <algorithm>
#include <set>

#include "ir/binary.h"
#include "ir/binary_values.h"
#include "ir/infer.h"
#include "ir/op.h"

namespace pelton::ir {

// Befriended by Graph, whose stable ids only files restore.
struct BinaryForm {
  static void set_stable_id(Graph& g, NodeId id, uint64_t stable_id) {
    g.edit(id).stable_id = stable_id;
    g.next_stable_id_ = std::max(g.next_stable_id_, stable_id + 1);
  }
};

namespace {

class Reader : private ValueReader {
 public:
  using ValueReader::ValueReader;

  Graph form() {
    if (uint64_t v = u(); v != kBinaryVersion)
      fail(ErrorCode::unsupported_version,
           cat("the graph has form ", v, ", this build reads ", kBinaryVersion));
    ops_.resize(count(2));
    for (const OpDef*& op : ops_) {
      std::string op_name(text());
      op = find_op(op_name);
      if (!op)
        fail(ErrorCode::unsupported_op,
             cat("the plan uses op '", op_name, "', which this build does not have"), "",
             "load the plug-in that brings it, or use a newer version");
      uint64_t version = u();
      if (version > static_cast<uint64_t>(op->version))
        fail(ErrorCode::unsupported_version,
             cat("the plan uses version ", version, " of op '", op_name, "', this build has ", op->version));
      if (version < static_cast<uint64_t>(op->version))
        fail(ErrorCode::unsupported_version, cat("the plan uses version ", version, " of op '", op_name,
                                                 "', which no step leads from to ", op->version));
    }
    Graph g;
    symbols_ = g.symbols;
    for (size_t n = count(3); n > 0; --n) {
      std::string symbol(text());
      if (!Dim::is_symbol_name(symbol)) bad(cat("'", symbol, "' is no name of a size"));
      Range range;
      range.min = s();
      range.max = s();
      if (range.min > range.max) bad(cat("the range of '", symbol, "' is empty"));
      symbols_->ranges[symbol] = range;
    }
    symbols_->next_fresh = u();
    known_ = *symbols_;
    graph(g);
    if (left() > 0) bad(cat(left(), " bytes follow the graph"));
    *symbols_ = known_;  // without what inference added
    return g;
  }

 private:
  Attr attr() {
    switch (choice<AttrKind>(static_cast<uint64_t>(AttrKind::graph), "attribute kind")) {
      case AttrKind::integer:
        return s();
      case AttrKind::real:
        return real();
      case AttrKind::boolean:
        return flag();
      case AttrKind::text:
        return std::string(text());
      case AttrKind::dtype:
        return dtype();
      case AttrKind::ints: {
        Ints v(count(1));
        for (int64_t& x : v) x = s();
        return v;
      }
      case AttrKind::floats: {
        Floats v(count(8));
        for (double& x : v) x = real();
        return v;
      }
      case AttrKind::strings: {
        Strings v(count(1));
        for (std::string& x : v) x = std::string(text());
        return v;
      }
      case AttrKind::dims:
        return dims();
      case AttrKind::tensor:
        return tensor();
      case AttrKind::graph:
        break;
    }
    if (++depth_ > kMaxDepth) bad("sub-graphs are nested too deep");
    auto body = std::make_shared<Graph>();
    body->symbols = symbols_;
    graph(*body);
    --depth_;
    return GraphPtr(std::move(body));
  }

  std::vector<Fact> facts() {
    std::vector<Fact> list(count(4));
    for (Fact& f : list) {
      f.relation = choice<Fact::Relation>(3, "relation");
      f.left = dim();
      f.right = dim();
      f.reason = std::string(text());
    }
    return list;
  }

  void graph(Graph& g) {
    std::vector<ValueId> values;
    auto used = [&](uint64_t number) {
      if (number >= values.size()) bad(cat("value ", number, " is used before it is defined"));
      return values[number];
    };
    g.name = std::string(text());
    for (size_t n = count(2); n > 0; --n) {
      std::string value_name(text());
      values.push_back(g.add_input(type(), std::move(value_name)));
    }
    for (size_t n = count(5); n > 0; --n) {
      Slot slot;
      slot.name = std::string(text());
      slot.kind = choice<SlotKind>(4, "kind of slot");
      slot.type = type();
      slot.tied_to = std::string(text());
      if (flag()) slot.initial = tensor();
      if (!slot.type.is_tensor() || !slot.type.ranked) bad(cat("slot '", slot.name, "' is no tensor"));
      if (slot.initial.defined() &&
          (slot.initial.dtype() != slot.type.dtype || slot.initial.rank() != slot.type.rank()))
        bad(cat("slot '", slot.name, "' does not start as what it holds"));
      values.push_back(g.add_slot(std::move(slot)));
    }
    g.checks = facts();
    g.guards = facts();
    for (size_t n = count(5); n > 0; --n) node(g, values, used);
    for (size_t n = count(2); n > 0; --n) {
      ValueId v = used(u());
      g.add_output(v, std::string(text()));
    }
    for (Slot& slot : g.slots)
      if (uint64_t next = u()) {
        slot.next = used(next - 1);
        agree(g, slot.next, g.type(slot.next), slot.type, cat("slot '", slot.name, "'"));
      }
    for (size_t n = count(3); n > 0; --n) {
      Alias a;
      a.output = choice<uint32_t>(g.outputs.empty() ? 0 : g.outputs.size() - 1, "output");
      a.input = choice<uint32_t>(g.inputs.empty() ? 0 : g.inputs.size() - 1, "input");
      a.must = flag();
      if (g.outputs.empty() || g.inputs.empty()) bad("an alias names no value");
      g.aliases.push_back(a);
    }
  }

  template <class Used>
  void node(Graph& g, std::vector<ValueId>& values, Used&& used) {
    uint64_t op_number = u();
    if (op_number >= ops_.size()) bad(cat("there is no op ", op_number));
    std::string node_name(text());
    uint64_t stable_id = u();
    if (stable_id == UINT64_MAX) bad("a stable id is out of range");
    std::vector<ValueId> inputs(count(1));
    for (ValueId& v : inputs)
      if (uint64_t number = u()) v = used(number - 1);
    Attrs attrs;
    for (size_t n = count(3); n > 0; --n) {
      std::string key(text());
      attrs.insert_or_assign(std::move(key), attr());
    }
    size_t results = count(2);
    NodeId id =
        g.add_node(*ops_[op_number], std::move(inputs), std::move(attrs), results, std::move(node_name));
    BinaryForm::set_stable_id(g, id, stable_id);
    try {
      infer(g, id);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::unsupported_op) throw;  // what a plug-in would bring
      fail(ErrorCode::bad_format, cat("the plan holds a node that cannot be: ", e.message()), e.where());
    }
    for (ValueId v : g[id].outputs) {
      std::string value_name(text());
      Type recorded = type();
      agree(g, v, g.type(v), recorded, g.describe(id));
      g.edit(v).type = std::move(recorded);
      g.edit(v).name = std::move(value_name);
      values.push_back(v);
    }
  }

  // The recorded type must be possible; where that depends on sizes, the run checks it.
  void agree(Graph& g, ValueId v, const Type& inferred, const Type& recorded, std::string_view where) {
    auto differ = [&] {
      fail(ErrorCode::bad_format,
           cat("the plan says ", g.label(v), " is ", recorded.str(), ", but it is ", inferred.str()),
           std::string(where));
    };
    if (inferred.kind != recorded.kind) differ();
    if (!inferred.is_tensor()) return;
    if (inferred.dtype != recorded.dtype || inferred.ranked != recorded.ranked ||
        inferred.rank() != recorded.rank())
      differ();
    for (size_t i = 0; i < inferred.shape.size(); ++i) {
      const Dim &a = inferred.shape[i], &b = recorded.shape[i];
      if (a == b) continue;
      Tri same = equal(a, b, symbols_->ranges);
      if (same == Tri::no) differ();
      if (same == Tri::yes) continue;
      std::set<std::string> names;
      a.collect_symbols(names);
      // Sizes that depend on data are compared where they appear.
      bool fresh = false;
      for (const std::string& n : names) fresh |= !known_.ranges.count(n);
      auto known = [&](const Fact& f) {
        return f.relation == Fact::Relation::equal && f.left == a && f.right == b;
      };
      if (!fresh && std::none_of(g.checks.begin(), g.checks.end(), known))
        g.checks.push_back({Fact::Relation::equal, a, b, std::string(where)});
    }
  }

  int depth_ = 0;
  std::vector<const OpDef*> ops_;
  std::shared_ptr<SymbolTable> symbols_;
  SymbolTable known_;
};

}  // namespace

Graph from_binary(std::string_view bytes, FunctionRef<Tensor(uint64_t, DType, const Dims&)> fetch) {
  return Reader(bytes, fetch).form();
}

}  // namespace pelton::ir
