// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin_call.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "backend/stateful.h"
#include "ir/op.h"
#include "tensor/dlpack.h"

namespace pelton::runtime {

using namespace ir;

namespace {

// Attributes of an op of the table; tensors and sub-graphs are left out.
std::string attributes_json(const Node& n) {
  if (n.op->family == Family::custom) return n.get_text("attributes");
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : n.attrs) {
    if (auto shape = std::get_if<Shape>(&value)) {
      out[key] = nlohmann::json::array();
      for (const Dim& d : *shape) out[key].push_back(d.str());
    } else if (auto type = std::get_if<DType>(&value)) {
      out[key] = std::string(name(*type));
    } else if (!std::holds_alternative<Tensor>(value) && !std::holds_alternative<GraphPtr>(value)) {
      std::visit(
          [&](const auto& v) {
            if constexpr (std::is_constructible_v<nlohmann::json, decltype(v)>) out[key] = v;
          },
          value);
    }
  }
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string layout_text(const Layout& layout) {
  if (layout.kind == Layout::Kind::channels_last) return "channels_last";
  return layout.is_plain() ? "plain" : cat("blocked ", int{layout.block});
}

bool is_token(const Graph& g, ValueId v) {
  return v && g.type(v).kind == TypeKind::token;
}

class PluginKernel : public backend::Kernel, public backend::Stateful {
 public:
  PluginKernel(const PluginFunctions& f, const backend::Instance& i)
      : f_(f), call_(i.graph, i.node(), i.inputs, i.outputs, i.constants), state_(nullptr, {f.release}) {
    PluginMessage message;
    void* state = nullptr;
    if (f.prepare && f.prepare(call_.get(), &state, message.get()))
      fail(ErrorCode::plugin, cat(f.title, ": ", message.str("cannot be prepared")));
    state_.reset(state);
    auto size_of = [&](int64_t (*size)(const pelton_op_call*), std::string_view what) {
      const int64_t bytes = size ? size(call_.get()) : 0;
      if (bytes < 0) fail(ErrorCode::plugin, cat(f.title, " asks for ", bytes, " bytes of ", what));
      return bytes;
    };
    scratch_ = size_of(f.scratch_bytes, "scratch");
    context_ = size_of(f.context_bytes, "memory for each context");
  }
  int64_t scratch_bytes() const override { return scratch_; }
  int64_t context_bytes() const override { return context_; }
  bool capturable() const override { return f_.recorded; }
  void run(const backend::RunArgs& args) const override {
    Tensor context = Tensor::zeros(DType::u8, {context_});  // nobody keeps it: as in a first run
    run_with(args, context.mutable_data());
  }
  void run_with(const backend::RunArgs& args, void* context) const override {
    const pelton_op_buffers buffers{
        sizeof buffers, args.in.data(), args.out.data(), args.scratch, context_ ? context : nullptr,
        args.stream};
    f_.run(state_.get(), call_.get(), &buffers);
  }

 private:
  const PluginFunctions& f_;
  PluginCall call_;
  struct Release {
    decltype(PluginFunctions::release) function;
    void operator()(void* state) const {
      if (function) function(state);
    }
  };
  std::unique_ptr<void, Release> state_;
  int64_t scratch_ = 0, context_ = 0;
};

}  // namespace

PluginCall::PluginCall(const Graph& g, const Node& n, bool results) : attributes_(attributes_json(n)) {
  for (ValueId v : n.inputs)
    if (!is_token(g, v)) inputs_.push_back(value(g, v, nullptr));
  size_t count = 0;
  for (ValueId v : n.outputs) {
    if (is_token(g, v)) continue;
    ++count;
    if (results) outputs_.push_back(value(g, v, nullptr));
  }
  close(count, results);
}

PluginCall::PluginCall(const Graph& g, const Node& n, const std::vector<backend::TensorSpec>& inputs,
                       const std::vector<backend::TensorSpec>& outputs, const std::vector<Tensor>& constants)
    : attributes_(attributes_json(n)) {
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    if (is_token(g, n.inputs[i])) continue;
    inputs_.push_back(value(g, n.inputs[i], &inputs[i]));
    if (constants[i].defined()) inputs_.back().constant = constants[i].data();
  }
  for (size_t i = 0; i < n.outputs.size(); ++i)
    if (!is_token(g, n.outputs[i])) outputs_.push_back(value(g, n.outputs[i], &outputs[i]));
  close(outputs_.size(), true);
}

void PluginCall::close(size_t outputs, bool results) {
  call_ = {sizeof(pelton_op_call), attributes_.c_str(),
           inputs_.size(),         outputs,
           inputs_.data(),         results ? outputs_.data() : nullptr};
}

pelton_op_value PluginCall::value(const Graph& g, ValueId v, const backend::TensorSpec* spec) {
  pelton_op_value out{};
  out.ndim = -1;
  if (!v || !g.type(v).is_tensor() || !g.type(v).ranked) return out;
  const Type& type = g.type(v);
  auto s = std::make_unique<Storage>();
  for (const Dim& d : type.shape) s->texts.push_back(d.str());
  for (const std::string& t : s->texts) s->dims.push_back(t.c_str());
  if (spec) s->shape = spec->dims;
  s->layout = layout_text(type.layout);
  to_dlpack(type.dtype, &out.dtype.code, &out.dtype.bits);
  out.dtype.lanes = 1;
  out.ndim = static_cast<int32_t>(type.rank());
  out.dims = s->dims.data();
  out.shape = spec ? s->shape.data() : nullptr;
  out.layout = s->layout.c_str();
  storage_.push_back(std::move(s));
  return out;
}

std::string plugin_refuse(const PluginFunctions& f, const Graph& g, NodeId id) {
  for (const std::vector<ValueId>* values : {&g[id].inputs, &g[id].outputs})
    for (ValueId v : *values)
      if (v && !f.any_layout && !g.type(v).layout.is_plain())
        return cat("needs plain layouts, got ", g.type(v).str());
  PluginCall call(g, g[id], true);
  PluginMessage message;
  if (f.refuse && f.refuse(call.get(), message.get())) return message.str("refuses the node");
  return "";
}

std::unique_ptr<backend::Kernel> plugin_prepare(const PluginFunctions& f, const backend::Instance& instance) {
  return std::make_unique<PluginKernel>(f, instance);
}

void plugin_eval(const PluginFunctions& f, EvalContext& c) {
  backend::Instance instance{c.graph, c.graph[c.node.outputs.at(0)].producer, {}, {}, {}, c.symbols};
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const bool tensor = c.has(i) && c.inputs[i].kind == TypeKind::tensor;
    in.push_back(tensor ? c.in(i).data() : nullptr);
    instance.inputs.emplace_back();
    if (tensor) instance.inputs.back() = {c.in(i).dtype(), c.in(i).dims(), {}};
    instance.constants.emplace_back();
  }
  for (size_t i = 0; i < c.outputs.size(); ++i) {
    const Type& type = c.graph.type(c.node.outputs[i]);
    instance.outputs.emplace_back();
    if (type.kind == TypeKind::token) {
      c.outputs[i] = HostValue::token();
      continue;
    }
    instance.outputs.back() = {type.dtype, eval(type.shape, c.symbols), {}};
    c.out(i, Tensor::zeros(type.dtype, instance.outputs.back().dims));
    out.push_back(c.outputs[i].tensor.mutable_data());
  }
  const PluginKernel kernel(f, instance);
  Tensor scratch(DType::u8, {kernel.scratch_bytes()}),
      context = Tensor::zeros(DType::u8, {kernel.context_bytes()});
  backend::RunArgs args;
  args.in = in;
  args.out = out;
  args.scratch = scratch.mutable_data();
  kernel.run_with(args, context.mutable_data());
}

}  // namespace pelton::runtime
