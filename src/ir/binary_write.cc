// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <map>

#include "ir/binary.h"
#include "ir/op.h"

namespace pelton::ir {
namespace {

class Writer {
 public:
  explicit Writer(FunctionRef<uint64_t(const Tensor&)> store) : store_(store) {}

  std::string form(const Graph& g) {
    collect_ops(g);
    u(kBinaryVersion);
    u(ops_.size());
    uint64_t number = 0;
    for (auto& [op_name, index] : ops_) {
      index = number++;
      text(op_name);
      u(static_cast<uint64_t>(op(op_name).version));
    }
    u(g.symbols->ranges.size());
    for (const auto& [symbol, range] : g.symbols->ranges) {
      text(symbol);
      s(range.min);
      s(range.max);
    }
    u(g.symbols->next_fresh);
    graph(g);
    return std::move(out_);
  }

 private:
  void u(uint64_t v) {
    for (; v >= 0x80; v >>= 7) out_.push_back(static_cast<char>(v | 0x80));
    out_.push_back(static_cast<char>(v));
  }
  void s(int64_t v) { u((static_cast<uint64_t>(v) << 1) ^ static_cast<uint64_t>(v >> 63)); }
  void text(std::string_view t) {
    u(t.size());
    out_.append(t);
  }
  void real(double v) {
    char bytes[8];
    std::memcpy(bytes, &v, 8);
    out_.append(bytes, 8);
  }
  void dim(const Dim& d) {
    u(d.is_const() ? 0 : 1);
    if (d.is_const())
      s(d.value());
    else
      text(d.str());
  }
  void dims(const Shape& shape) {
    u(shape.size());
    for (const Dim& d : shape) dim(d);
  }

  void type(const Type& t) {
    u(static_cast<uint64_t>(t.kind));
    switch (t.kind) {
      case TypeKind::tensor:
        u(static_cast<uint64_t>(t.dtype));
        u(t.ranked);
        dims(t.shape);
        u(static_cast<uint64_t>(t.layout.kind));
        u(t.layout.block);
        break;
      case TypeKind::sequence:
        type(*t.element);
        u(t.items ? 1 : 0);
        if (!t.items) break;
        u(t.items->size());
        for (const Type& item : *t.items) type(item);
        break;
      case TypeKind::optional:
        type(*t.element);
        break;
      case TypeKind::token:
        break;
    }
  }

  void tensor(const Tensor& t) {
    u(static_cast<uint64_t>(t.dtype()));
    u(t.dims().size());
    for (int64_t d : t.dims()) u(static_cast<uint64_t>(d));
    if (t.dtype() == DType::string) {
      u(2);
      for (const std::string& item : t.strings()) text(item);
    } else if (t.bytes() <= kInlineTensorBytes) {
      u(0);
      if (t.bytes()) out_.append(static_cast<const char*>(t.data()), static_cast<size_t>(t.bytes()));
    } else {
      u(1);
      u(store_(t));
    }
  }

  void attr(const Attr& a) {
    u(static_cast<uint64_t>(kind(a)));
    switch (kind(a)) {
      case AttrKind::integer:
        return s(std::get<int64_t>(a));
      case AttrKind::real:
        return real(std::get<double>(a));
      case AttrKind::boolean:
        return u(std::get<bool>(a));
      case AttrKind::text:
        return text(std::get<std::string>(a));
      case AttrKind::dtype:
        return u(static_cast<uint64_t>(std::get<DType>(a)));
      case AttrKind::ints:
        u(std::get<Ints>(a).size());
        for (int64_t v : std::get<Ints>(a)) s(v);
        return;
      case AttrKind::floats:
        u(std::get<Floats>(a).size());
        for (double v : std::get<Floats>(a)) real(v);
        return;
      case AttrKind::strings:
        u(std::get<Strings>(a).size());
        for (const std::string& v : std::get<Strings>(a)) text(v);
        return;
      case AttrKind::dims:
        return dims(std::get<Shape>(a));
      case AttrKind::tensor:
        return tensor(std::get<Tensor>(a));
      case AttrKind::graph:
        return graph(*std::get<GraphPtr>(a));
    }
  }

  void facts(const std::vector<Fact>& list) {
    u(list.size());
    for (const Fact& f : list) {
      u(static_cast<uint64_t>(f.relation));
      dim(f.left);
      dim(f.right);
      text(f.reason);
    }
  }

  void graph(const Graph& g) {
    std::vector<uint64_t> number(g.value_count(), UINT64_MAX);
    uint64_t next = 0;
    auto count = [&](ValueId v) { number[v.index] = next++; };
    auto used = [&](ValueId v) {
      PELTON_CHECK(number[v.index] != UINT64_MAX, g.label(v), " is used before it is defined");
      return number[v.index];
    };
    text(g.name);
    u(g.inputs.size());
    for (ValueId v : g.inputs) {
      count(v);
      text(g[v].name);
      type(g.type(v));
    }
    u(g.slots.size());
    for (const Slot& slot : g.slots) {
      count(slot.old_value);
      text(slot.name);
      u(static_cast<uint64_t>(slot.kind));
      type(slot.type);
      text(slot.tied_to);
      u(slot.initial.defined());
      if (slot.initial.defined()) tensor(slot.initial);
    }
    facts(g.checks);
    facts(g.guards);
    u(g.order().size());
    for (NodeId id : g.order()) {
      const Node& n = g[id];
      u(ops_.at(n.op->name));
      text(n.name);
      u(n.stable_id);
      u(n.inputs.size());
      for (ValueId v : n.inputs) u(v ? used(v) + 1 : 0);
      u(n.attrs.size());
      for (const auto& [key, value] : n.attrs) {
        text(key);
        attr(value);
      }
      u(n.outputs.size());
      for (ValueId v : n.outputs) {
        text(g[v].name);
        type(g.type(v));
        count(v);
      }
    }
    u(g.outputs.size());
    for (size_t i = 0; i < g.outputs.size(); ++i) {
      u(used(g.outputs[i]));
      text(g.output_name(i));
    }
    for (const Slot& slot : g.slots) u(slot.next ? used(slot.next) + 1 : 0);
    u(g.aliases.size());
    for (const Alias& a : g.aliases) {
      u(a.output);
      u(a.input);
      u(a.must);
    }
  }

  void collect_ops(const Graph& g) {
    for (NodeId id : g.order()) {
      ops_.emplace(g.op(id).name, 0);
      for (const auto& [key, value] : g[id].attrs)
        if (auto body = std::get_if<GraphPtr>(&value)) collect_ops(**body);
    }
  }

  FunctionRef<uint64_t(const Tensor&)> store_;
  std::string out_;
  std::map<std::string_view, uint64_t> ops_;  // name to number
};

}  // namespace

std::string to_binary(const Graph& graph, FunctionRef<uint64_t(const Tensor&)> store) {
  return Writer(store).form(graph);
}

}  // namespace pelton::ir
