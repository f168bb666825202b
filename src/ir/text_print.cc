// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "ir/op.h"
#include "ir/text.h"

namespace pelton::ir {
namespace {

std::string quoted(std::string_view s) {
  static constexpr char hex[] = "0123456789abcdef";
  std::string out = "\"";
  for (unsigned char c : s) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n')
      out += "\\n";
    else if (c < 0x20 || c == 0x7f) {
      out += "\\x";
      out += hex[c >> 4];
      out += hex[c & 15];
    } else
      out += static_cast<char>(c);
  }
  return out + '"';
}

// A real always shows that it is one: 1.0, 1e+20, inf, nan.
std::string real(double v) {
  std::string s = cat(v);
  if (s.find_first_of(".einf") == s.npos) s += ".0";
  return s;
}

template <class T, class F>
std::string list(std::string_view prefix, const std::vector<T>& items, F&& each) {
  std::string out = cat(prefix, "[");
  for (size_t i = 0; i < items.size(); ++i) append(out, cat(i ? ", " : "", each(items[i])));
  return out + "]";
}

std::string print_tensor(const Tensor& t, const PrintOptions& options) {
  std::string out = cat("tensor<", t.str(), ">");
  if (options.max_elements >= 0 && t.count() > options.max_elements) return cat(out, "(...)");
  out += "{";
  for (int64_t i = 0; i < t.count(); ++i) {
    if (i) out += ", ";
    if (t.dtype() == DType::string)
      out += quoted(t.strings()[static_cast<size_t>(i)]);
    else if (t.dtype() == DType::boolean)
      out += t.get_int(i) ? "true" : "false";
    else if (t.dtype() == DType::u64)
      append(out, static_cast<uint64_t>(t.get_int(i)));
    else if (!is_float(t.dtype()))
      append(out, t.get_int(i));
    else if (t.dtype() == DType::f32 && std::isfinite(t.get_double(i))) {
      char buffer[32];  // shortest text for the narrower type
      auto r = std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(t.get_double(i)));
      out.append(buffer, r.ptr);
    } else
      append(out, t.get_double(i));
  }
  return out + "}";
}

void used_symbols(const Type& t, std::set<std::string>& into) {
  for (const Dim& d : t.shape) d.collect_symbols(into);
  if (t.element) used_symbols(*t.element, into);
  if (t.items)
    for (const Type& item : *t.items) used_symbols(item, into);
}
// Inference makes symbols that nothing refers to any more; the text shows those in use.
void used_symbols(const Graph& g, std::set<std::string>& into) {
  for (ValueId v : g.inputs) used_symbols(g.type(v), into);
  for (const Slot& s : g.slots) used_symbols(s.type, into);
  for (const std::vector<Fact>* facts : {&g.checks, &g.guards})
    for (const Fact& f : *facts) {
      f.left.collect_symbols(into);
      f.right.collect_symbols(into);
    }
  for (NodeId id : g.order()) {
    for (ValueId v : g[id].outputs) used_symbols(g.type(v), into);
    for (const auto& [key, value] : g[id].attrs) {
      if (auto dims = std::get_if<Shape>(&value))
        for (const Dim& d : *dims) d.collect_symbols(into);
      if (auto body = std::get_if<GraphPtr>(&value)) used_symbols(**body, into);
    }
  }
}

class Printer {
 public:
  Printer(const Graph& graph, const PrintOptions& options) : g_(graph), options_(options) {
    auto name_value = [&](ValueId v) {
      const std::string& n = g_[v].name;
      if (Dim::is_symbol_name(n) && taken_.insert(n).second) labels_[v.index] = cat("%", n);
    };
    for (ValueId v : g_.inputs) name_value(v);
    for (const Slot& s : g_.slots) name_value(s.old_value);
    for (NodeId id : g_.order())
      for (ValueId v : g_[id].outputs) name_value(v);
    size_t next = 0;
    auto number = [&](ValueId v) {
      if (!labels_.count(v.index)) labels_[v.index] = cat("%", next++);
    };
    for (ValueId v : g_.inputs) number(v);
    for (const Slot& s : g_.slots) number(s.old_value);
    for (NodeId id : g_.order())
      for (ValueId v : g_[id].outputs) number(v);
  }

  std::string label(ValueId v) const {
    if (!v) return "_";
    auto it = labels_.find(v.index);
    return it == labels_.end() ? cat("%<removed ", v.index, ">") : it->second;
  }

  std::string node(NodeId id, const std::string& indent) const {
    const Node& n = g_[id];
    std::string out = indent;
    for (size_t i = 0; i < n.outputs.size(); ++i) append(out, cat(i ? ", " : "", label(n.outputs[i])));
    if (!n.outputs.empty()) out += " = ";
    append(out, cat(n.op->name, "("));
    for (size_t i = 0; i < n.inputs.size(); ++i) append(out, cat(i ? ", " : "", label(n.inputs[i])));
    out += ")";
    if (!n.attrs.empty()) {
      out += " {";
      bool first = true;
      for (const auto& [key, value] : n.attrs) {
        append(out, cat(first ? "" : ", ", key, " = ", attr(value, indent)));
        first = false;
      }
      out += "}";
    }
    if (!n.outputs.empty()) {
      out += " : ";
      for (size_t i = 0; i < n.outputs.size(); ++i)
        append(out, cat(i ? ", " : "", g_.type(n.outputs[i]).str()));
    }
    if (options_.names && !n.name.empty()) append(out, cat(" @", quoted(n.name)));
    return out;
  }

  std::string attr(const Attr& a, const std::string& indent) const {
    if (auto g = std::get_if<GraphPtr>(&a)) return Printer(**g, options_).graph(indent + "  ", false);
    return print(a, options_);
  }

  // Sub-graphs share the symbols of the outer graph and do not repeat them.
  std::string graph(const std::string& indent, bool outer) const {
    std::string out = cat("graph ", quoted(g_.name), "(");
    for (size_t i = 0; i < g_.inputs.size(); ++i)
      append(out, cat(i ? ", " : "", label(g_.inputs[i]), ": ", g_.type(g_.inputs[i]).str(),
                      value_name(g_.inputs[i])));
    out += ") {\n";
    std::string inner = indent + "  ";
    if (outer) {
      std::set<std::string> used;
      used_symbols(g_, used);
      for (const auto& [symbol, range] : g_.symbols->ranges)
        if (used.count(symbol))
          append(out, cat(inner, "symbol ", symbol, " in [", range.min, ", ", range.max, "]\n"));
    }
    auto fact = [&](std::string_view word, const Fact& f) {
      append(out, cat(inner, word, " ", f.str(), " @", quoted(f.reason), "\n"));
    };
    for (const Fact& f : g_.checks) fact("check", f);
    for (const Fact& f : g_.guards) fact("guard", f);
    for (const Slot& s : g_.slots) {
      append(out, cat(inner, "slot ", label(s.old_value), " ", pelton::ir::name(s.kind), " ", quoted(s.name),
                      " : ", s.type.str()));
      if (!s.tied_to.empty()) append(out, cat(" tied ", quoted(s.tied_to)));
      if (s.initial.defined()) append(out, cat(" = ", print_tensor(s.initial, options_)));
      out += "\n";
    }
    for (NodeId id : g_.order()) append(out, cat(node(id, inner), "\n"));
    for (const Slot& s : g_.slots)
      if (s.next) append(out, cat(inner, "next ", label(s.old_value), " = ", label(s.next), "\n"));
    for (const Alias& a : g_.aliases)
      append(out, cat(inner, a.must ? "must" : "may", " alias output ", a.output, " input ", a.input, "\n"));
    append(out, cat(inner, "return "));
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const std::string& n = g_.output_name(i);
      append(out, cat(i ? ", " : "", label(g_.outputs[i])));
      if (!n.empty() && label(g_.outputs[i]) != cat("%", n)) append(out, cat(" @", quoted(n)));
    }
    return cat(out, "\n", indent, "}");
  }

 private:
  // Names of graph inputs are part of the interface: spelled out when the label cannot show them.
  std::string value_name(ValueId v) const {
    const std::string& n = g_[v].name;
    return n.empty() || label(v) == cat("%", n) ? "" : cat(" @", quoted(n));
  }

  const Graph& g_;
  PrintOptions options_;
  std::unordered_map<uint32_t, std::string> labels_;
  std::unordered_set<std::string> taken_;
};

}  // namespace

std::string print(const Graph& graph, const PrintOptions& options) {
  return Printer(graph, options).graph("", true) + "\n";
}
std::string print_node(const Graph& graph, NodeId node, const PrintOptions& options) {
  return Printer(graph, options).node(node, "");
}

std::string print(const Attr& attr, const PrintOptions& options) {
  switch (kind(attr)) {
    case AttrKind::integer:
      return cat(std::get<int64_t>(attr));
    case AttrKind::real:
      return real(std::get<double>(attr));
    case AttrKind::boolean:
      return std::get<bool>(attr) ? "true" : "false";
    case AttrKind::text:
      return quoted(std::get<std::string>(attr));
    case AttrKind::dtype:
      return std::string(name(std::get<DType>(attr)));
    case AttrKind::ints:
      return list("", std::get<Ints>(attr), [](int64_t v) { return cat(v); });
    case AttrKind::floats:
      return list("reals", std::get<Floats>(attr), real);
    case AttrKind::strings:
      return list("texts", std::get<Strings>(attr), [](const std::string& s) { return quoted(s); });
    case AttrKind::dims:
      return list("dims", std::get<Shape>(attr), [](const Dim& d) { return d.str(); });
    case AttrKind::tensor:
      return print_tensor(std::get<Tensor>(attr), options);
    case AttrKind::graph:
      return Printer(*std::get<GraphPtr>(attr), options).graph("", false);
  }
  return "";
}

}  // namespace pelton::ir
