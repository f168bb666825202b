// SPDX-License-Identifier: Apache-2.0
#include "nn/model.h"

#include "base/nearest.h"
#include "nn/models/models.h"

namespace pelton::nn {

namespace {

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& n : names) append(out, cat(out.empty() ? "" : ", ", n));
  return out;
}

// Whole numbers are counts and sizes. Only of layers there may be none.
void check_sizes(const std::string& name, const ir::Attr& value, const std::string& where) {
  const int64_t least = name == "layers" ? 0 : 1;
  auto check = [&](int64_t n) {
    if (n < least)
      fail(ErrorCode::usage, cat("option '", name, "' is ", n, ", but counts from ", least), where);
  };
  if (const int64_t* n = std::get_if<int64_t>(&value)) check(*n);
  if (const Ints* list = std::get_if<Ints>(&value))
    for (int64_t n : *list) check(n);
}

}  // namespace

ModelOptions::ModelOptions(const ModelDef& model, const Attrs& given) {
  std::vector<std::string> names;
  for (const ir::AttrDef& d : model.options) {
    names.emplace_back(d.name);
    if (d.default_value) values_.emplace(d.name, *d.default_value);
  }
  const std::string where = cat("model '", model.name, "'");
  for (const auto& [name, value] : given) {
    const ir::AttrDef* def = nullptr;
    for (const ir::AttrDef& d : model.options)
      if (d.name == name) def = &d;
    if (!def) {
      std::string near = nearest(name, names);
      fail(ErrorCode::usage, cat("there is no option '", name, "'"), where,
           near.empty() ? cat("its options are ", list(names)) : cat("did you mean '", near, "'?"));
    }
    ir::Attr v = value;
    if (def->kind == ir::AttrKind::real && std::holds_alternative<int64_t>(v))
      v = static_cast<double>(std::get<int64_t>(v));
    if (ir::kind(v) != def->kind)
      fail(ErrorCode::usage,
           cat("option '", name, "' is ", ir::name(def->kind), ", not ", ir::name(ir::kind(v))), where);
    check_sizes(name, v, where);
    values_[name] = std::move(v);
  }
  for (const ir::AttrDef& d : model.options)
    if (!values_.count(d.name)) fail(ErrorCode::usage, cat("option '", d.name, "' must be given"), where);
}

const ir::Attr& ModelOptions::at(std::string_view name) const {
  auto it = values_.find(name);
  PELTON_CHECK(it != values_.end(), "no model option '", name, "'");
  return it->second;
}

const std::vector<ModelDef>& models() {
  static const std::vector<ModelDef> all = all_models();
  return all;
}

const ModelDef& find_model(std::string_view name) {
  std::vector<std::string> names;
  for (const ModelDef& m : models()) {
    if (m.name == name) return m;
    names.emplace_back(m.name);
  }
  std::string near = nearest(name, names);
  fail(ErrorCode::bad_name, cat("there is no model '", name, "'"), "",
       near.empty() ? cat("the models are ", list(names)) : cat("did you mean '", near, "'?"));
}

BuiltModel build_model(const ModelDef& model, const ModelOptions& options, const Dim& batch,
                       const NetOptions& net_options) {
  BuiltModel out{Graph(std::string(model.name)), model.inputs(options)};
  if (auto symbol = batch.as_symbol()) out.graph.symbols->ranges[*symbol] = {1, INT64_MAX};
  Net net(out.graph, net_options);
  std::vector<ValueId> inputs;
  for (const ModelInput& i : out.inputs) {
    Shape shape{batch};
    for (int64_t d : i.sample) shape.emplace_back(d);
    inputs.push_back(out.graph.add_input(ir::Type::tensor(i.dtype, shape), i.name));
  }
  out.graph.add_output(model.build(net, options, inputs), std::string(model.output));
  return out;
}

void freeze(Graph& graph) {
  for (const ir::Slot& s : graph.slots)
    if (s.next && s.next != s.old_value)
      fail(ErrorCode::usage, cat("state '", s.name, "' changes with each run and cannot be frozen"),
           cat("graph '", graph.name, "'"), "build the model in eval mode");
  std::vector<ir::Slot> slots = std::move(graph.slots);
  graph.slots.clear();
  ir::NodeId first = graph.order().empty() ? ir::NodeId{} : graph.order().front();
  Builder b(graph, first);
  for (const ir::Slot& s : slots) {
    Tensor t = s.initial;
    if (!t.defined()) {
      auto dims = as_dims(s.type.shape);
      PELTON_CHECK(dims, "slot '", s.name, "' of ", s.type.str());
      t = Tensor::zeros(s.type.dtype, *dims);
    }
    graph.edit(s.old_value).name.clear();
    ValueId c = b.constant(std::move(t));
    graph.replace_uses(s.old_value, c);
    graph.edit(c).name = s.name;
  }
  graph.compact();
}

}  // namespace pelton::nn
