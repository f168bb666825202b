// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin_graph.h"

#include "ir/text.h"
#include "runtime/plugin_call.h"

namespace pelton::runtime {

using namespace ir;

namespace {

// Values go over the C interface as their index plus one. Exceptions stop here, and are thrown again when the
// callback has returned.
class Recorder {
 public:
  explicit Recorder(Builder& b) : b_(b), c_{sizeof c_, this, &Recorder::op} {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  const pelton_ir_builder* get() const { return &c_; }
  static pelton_ir_value handle(ValueId v) { return v ? v.index + 1 : 0; }
  static std::vector<pelton_ir_value> handles(const std::vector<ValueId>& values) {
    std::vector<pelton_ir_value> out;
    for (ValueId v : values) out.push_back(handle(v));
    return out;
  }
  ValueId value(pelton_ir_value h) const {
    if (h > b_.graph().value_count()) fail(ErrorCode::plugin, cat("there is no value ", h));
    ValueId v;
    if (h) v = ValueId{h - 1};
    return v;
  }
  // After the callback: `status` is what it returned.
  void check(const pelton_custom_op& op, int status, const PluginMessage& message, std::string_view what) {
    if (status || !error_.empty())
      fail(ErrorCode::plugin, cat(op.domain, "::", op.name, " version ", op.version, ": its ", what,
                                  " fails: ", error_.empty() ? message.str("no reason given") : error_));
  }

 private:
  static int op(void* host, const char* name, size_t input_count, const pelton_ir_value* inputs,
                const char* attributes, size_t output_count, pelton_ir_value* outputs) {
    auto& self = *static_cast<Recorder*>(host);
    if (!self.error_.empty()) return 1;
    try {
      std::vector<ValueId> operands;
      for (size_t i = 0; i < input_count; ++i) operands.push_back(self.value(inputs[i]));
      const std::vector<ValueId> results =
          self.b_.ops(name, operands, parse_attrs(attributes ? attributes : ""), output_count);
      for (size_t i = 0; i < output_count; ++i) outputs[i] = handle(results[i]);
      return 0;
    } catch (const std::exception& e) {
      self.error_ = e.what();
      return 1;
    }
  }

  Builder& b_;
  pelton_ir_builder c_;
  std::string error_;
};

// The gradient as one node of another op of the plug-in.
void gradient_by_name(const pelton_custom_op& op, GradientContext& c) {
  std::vector<ValueId> inputs = c.node.inputs;
  for (size_t i = 0; i < c.node.outputs.size(); ++i) inputs.push_back(c.result(i));
  for (size_t i = 0; i < c.node.outputs.size(); ++i) inputs.push_back(c.grad_or_zeros(i));
  std::vector<size_t> floats;
  for (size_t i = 0; i < c.node.inputs.size(); ++i)
    if (c.has(i) && is_float(c.b.dtype(c.in(i)))) floats.push_back(i);
  Attrs attrs = c.node.attrs;
  attrs["name"] = std::string(op.gradient);
  std::vector<ValueId> grads = c.b.ops("custom", inputs, attrs, floats.size());
  for (size_t k = 0; k < floats.size(); ++k)
    if (c.wants(floats[k])) c.set(floats[k], grads[k]);
}

}  // namespace

std::vector<ValueId> plugin_decompose(const pelton_custom_op& op, Builder& b, const Node& node) {
  Recorder recorder(b);
  PluginMessage message;
  std::vector<ValueId> out;
  {
    const PluginCall call(b.graph(), node, true);
    const std::vector<pelton_ir_value> operands = Recorder::handles(node.inputs);
    std::vector<pelton_ir_value> results(node.outputs.size());
    const int status =
        op.decompose(call.get(), recorder.get(), operands.data(), results.data(), message.get());
    recorder.check(op, status, message, "decomposition");
    for (pelton_ir_value h : results) out.push_back(recorder.value(h));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const Type& want = b.type(node.outputs[i]);
    if (!out[i] || b.type(out[i]).str() != want.str())
      fail(ErrorCode::plugin,
           cat(op.domain, "::", op.name, " version ", op.version, ": its decomposition yields ",
               out[i] ? b.type(out[i]).str() : "nothing", " for result ", i, " of type ", want.str()));
  }
  return out;
}

void plugin_gradient(const pelton_custom_op& op, GradientContext& c) {
  if (!op.build_gradient) return gradient_by_name(op, c);
  std::vector<ValueId> results, grads;
  for (size_t i = 0; i < c.node.outputs.size(); ++i) {
    results.push_back(c.result(i));
    grads.push_back(c.grad(i));
  }
  Recorder recorder(c.b);
  PluginMessage message;
  const PluginCall call(c.b.graph(), c.node, true);
  const std::vector<pelton_ir_value> in = Recorder::handles(c.node.inputs), out = Recorder::handles(results),
                                     out_grads = Recorder::handles(grads);
  std::vector<pelton_ir_value> in_grads(c.node.inputs.size());
  const int status = op.build_gradient(call.get(), recorder.get(), in.data(), out.data(), out_grads.data(),
                                       in_grads.data(), message.get());
  recorder.check(op, status, message, "gradient");
  for (size_t i = 0; i < in_grads.size(); ++i)
    if (in_grads[i] && c.wants(i)) c.set(i, recorder.value(in_grads[i]));
}

}  // namespace pelton::runtime
