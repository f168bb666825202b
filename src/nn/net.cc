// SPDX-License-Identifier: Apache-2.0
#include "nn/net.h"

#include "ir/graph.h"

namespace pelton::nn {

Net::Net(Graph& graph, NetOptions options) : b_(graph), options_(options) {
  for (uint32_t i = 0; i < graph.slots.size(); ++i) slots_[graph.slots[i].name] = i;
}

Net::Scope::Scope(Net& net, std::string_view part) : net_(net), length_(net.path_.size()) {
  net.path_ = net.path(part);
}
Net::Scope::~Scope() {
  net_.path_.resize(length_);
}

std::string Net::path(std::string_view name) const {
  if (name.empty()) return path_;
  return path_.empty() ? std::string(name) : cat(path_, ".", name);
}

ValueId Net::slot(const std::string& name, ir::SlotKind kind, const Dims& dims, const Init& init) {
  if (auto it = slots_.find(name); it != slots_.end()) {
    const ir::Slot& s = graph().slots[it->second];
    PELTON_CHECK(s.type.shape == to_shape(dims), "'", name, "' is ", s.type.str(), ", asked for as ", dims);
    return s.old_value;
  }
  ir::Slot s;
  s.name = name;
  s.kind = kind;
  s.type = ir::Type::tensor(options_.dtype, to_shape(dims));
  if (options_.draw) s.initial = draw(init, dims, options_.dtype, options_.seed, name);
  ValueId value = graph().add_slot(std::move(s));
  slots_[name] = static_cast<uint32_t>(graph().slots.size() - 1);
  return value;
}

ValueId Net::adopt(std::string_view name, ir::SlotKind kind, Tensor initial) {
  std::string full = path(name);
  if (auto it = slots_.find(full); it != slots_.end()) return graph().slots[it->second].old_value;
  ir::Slot s;
  s.name = full;
  s.kind = kind;
  s.type = ir::Type::tensor(initial.dtype(), to_shape(initial.dims()));
  s.initial = std::move(initial);
  ValueId value = graph().add_slot(std::move(s));
  slots_[full] = static_cast<uint32_t>(graph().slots.size() - 1);
  return value;
}

ValueId Net::parameter(std::string_view name, const Dims& dims, const Init& init) {
  return slot(path(name), ir::SlotKind::parameter, dims, init);
}

ValueId Net::statistic(std::string_view name, const Dims& dims, double initial) {
  std::string full = path(name);
  ValueId old = slot(full, ir::SlotKind::statistic, dims, Init::constant(initial));
  auto it = now_.find(full);
  return it == now_.end() ? old : it->second;
}

void Net::store_statistic(std::string_view name, ValueId value) {
  std::string full = path(name);
  now_[full] = value;
  graph().slots[slots_.at(full)].next = value;
}

ValueId Net::valid_rows(ValueId x, int64_t rank) {
  if (!valid_) return {};
  Shape line(static_cast<size_t>(rank), Dim(1));
  line[0] = b_.shape(x)[0];
  ValueId row = b_.op("iota", {}, {{"dims", line}, {"axis", int64_t{0}}, {"dtype", DType::i64}});
  return b_.op("lt", {row, valid_});
}

}  // namespace pelton::nn
