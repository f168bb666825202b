// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/scope.h"

namespace pelton::onnx {

using ir::ValueId;

void GraphBuild::name_value(ValueId v, std::string_view name) {
  ir::Value& value = graph.edit(v);
  if (!value.name.empty() || name.empty()) return;
  auto [it, fresh] = taken.emplace(name);
  if (fresh) value.name = *it;
}

void Scope::add_initializers(const GraphView& graph) {
  for (const TensorView& t : graph.initializers) initializers_[t.name] = &t;
  for (wire::Span span : graph.sparse_initializers) {
    std::string_view name;
    sparse_to_tensor(span, source_.owner, &name);
    sparse_[name] = span;
  }
}

void Scope::define(std::string_view name, ValueId value) {
  if (name.empty()) return;
  if (!values_.emplace(name, value).second)
    fail(ErrorCode::bad_format, cat("two values are named '", name, "'"), {},
         "names must be unique in a graph");
  build_.name_value(value, prefix_ + std::string(name));
}

bool Scope::visible(std::string_view name) const {
  return values_.count(name) || initializers_.count(name) || sparse_.count(name) ||
         (parent_ && parent_->visible(name));
}

ValueId Scope::find(std::string_view name) {
  if (auto it = values_.find(name); it != values_.end()) return it->second;
  ValueId v;
  if (auto it = initializers_.find(name); it != initializers_.end()) {
    v = builder().constant(to_tensor(*it->second, source_.owner, source_.external));
    build_.name_value(v, prefix_ + std::string(name));
  } else if (auto s = sparse_.find(name); s != sparse_.end()) {
    v = builder().constant(sparse_to_tensor(s->second, source_.owner));
    build_.name_value(v, prefix_ + std::string(name));
  } else if (parent_) {
    ValueId outer = parent_->find(name);
    if (!outer) return {};
    v = &parent_->build_ == &build_ ? outer : capture(outer, name);
  } else {
    return {};
  }
  values_[name] = v;
  return v;
}

ValueId Scope::capture(ValueId outer, std::string_view name) {
  for (const Capture& c : captures_)
    if (c.outer == outer) return c.inner;
  const ir::Graph& from = parent_->build_.graph;
  // Constants and known sizes are rebuilt inside, where shape arithmetic can see them.
  if (const Tensor* t = from.constant(outer)) return builder().constant(*t);
  const ir::Value& value = from[outer];
  if (value.contents && value.type.is_tensor() && value.type.dtype == DType::i64 && value.type.rank() == 1)
    return builder().op("contents", {}, {{"dims", Shape(*value.contents)}});
  ValueId inner = build_.graph.add_input(value.type);
  build_.name_value(inner, name);
  captures_.push_back({outer, inner});
  return inner;
}

}  // namespace pelton::onnx
