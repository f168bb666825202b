// SPDX-License-Identifier: Apache-2.0
#include "codegen/shared_form.h"

#include <map>

#include "base/cat.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace pelton::codegen {
namespace {

// Of a size that has it, it stays in sight, for loads of 16 bytes.
constexpr int64_t kFactor = 8;

// Sizes as symbols: equal ones are one symbol, named in the order in which they are met.
class Sizes {
 public:
  explicit Sizes(SharedForm& form) : form_(form) {}
  Dim of(int64_t size) {
    if (size <= 1) return Dim(size);
    auto [at, is_new] = known_.try_emplace(size);
    if (!is_new) return at->second;
    const int64_t factor = size % kFactor == 0 ? kFactor : 1;
    const std::string name = cat("n", known_.size() - 1);
    form_.sizes[name] = size / factor;
    form_.graph.symbols->ranges[name] = {1, int64_t{1} << 40};
    return at->second = Dim(factor) * Dim::symbol(name);
  }
  // Of attributes: sizes that inputs do not have stay as they are.
  Dim known(const Dim& d, const SymbolValues& symbols) const {
    const int64_t size = d.eval(symbols);
    const auto at = known_.find(size);
    return at == known_.end() ? Dim(size) : at->second;
  }

 private:
  SharedForm& form_;
  std::map<int64_t, Dim> known_;
};

ir::Type with_sizes(const ir::Type& type, const SymbolValues& symbols, Sizes& sizes) {
  ir::Type out = type;
  for (Dim& d : out.shape) d = sizes.of(d.eval(symbols));
  return out;
}

bool build(const ir::Graph& group, const SymbolValues& symbols, SharedForm& form) {
  Sizes sizes(form);
  ir::Builder b(form.graph);
  std::map<ir::ValueId, ir::ValueId> now;
  for (ir::ValueId v : group.inputs) now[v] = form.graph.add_input(with_sizes(group.type(v), symbols, sizes));
  for (ir::NodeId id : group.order()) {
    const ir::Node& n = group[id];
    if (n.is("constant")) {
      const Tensor* const t = group.constant(n.outputs[0]);
      if (!t || t->dtype() == DType::string || t->count() == 0) return false;
      now[n.outputs[0]] = form.graph.add_input(with_sizes(group.type(n.outputs[0]), symbols, sizes));
      form.constants.push_back(*t);
      continue;
    }
    std::vector<ir::ValueId> operands;
    for (ir::ValueId v : n.inputs) operands.push_back(v ? now.at(v) : ir::ValueId());
    ir::Attrs attrs = n.attrs;
    for (auto& [name, value] : attrs)
      if (auto* const dims = std::get_if<Shape>(&value))
        for (Dim& d : *dims) d = sizes.known(d, symbols);
    const std::vector<ir::ValueId> results = b.ops(n.op->name, operands, attrs, n.outputs.size());
    for (size_t i = 0; i < results.size(); ++i) {
      const Shape &made = form.graph.type(results[i]).shape, &wanted = group.type(n.outputs[i]).shape;
      if (made.size() != wanted.size() || eval(made, form.sizes) != eval(wanted, symbols)) return false;
      now[n.outputs[i]] = results[i];
    }
  }
  for (ir::ValueId v : group.outputs) form.graph.add_output(now.at(v));
  return true;
}

}  // namespace

std::optional<SharedForm> shared_form(const ir::Graph& group, const SymbolValues& symbols) {
  SharedForm form{ir::Graph("group"), {}, {}};
  try {
    if (build(group, symbols, form)) return form;
  } catch (const Error&) {  // an op that does not take what is not known
  }
  return {};
}

}  // namespace pelton::codegen
