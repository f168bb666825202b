// SPDX-License-Identifier: Apache-2.0
// What plug-ins see of a node and what they say: the structs of include/pelton/c/plugin.h over graphs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/kernel.h"
#include "pelton/c/plugin.h"

namespace pelton::runtime {

// A pelton_op_call with the memory it points into. Tokens are left out.
class PluginCall {
 public:
  // Sizes stay symbolic; `results`: whether the call shows them.
  PluginCall(const ir::Graph& graph, const ir::Node& node, bool results);
  // With exact sizes: those of the operands and results, one an entry of the node.
  PluginCall(const ir::Graph& graph, const ir::Node& node, const std::vector<backend::TensorSpec>& inputs,
             const std::vector<backend::TensorSpec>& outputs, const std::vector<Tensor>& constants);
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;
  const pelton_op_call* get() const { return &call_; }

 private:
  struct Storage {
    std::vector<std::string> texts;
    std::vector<const char*> dims;
    Dims shape;
    std::string layout;
  };
  pelton_op_value value(const ir::Graph& graph, ir::ValueId v, const backend::TensorSpec* spec);
  void close(size_t outputs, bool results);

  std::string attributes_;
  std::vector<std::unique_ptr<Storage>> storage_;
  std::vector<pelton_op_value> inputs_, outputs_;
  pelton_op_call call_;
};

class PluginMessage {
 public:
  PluginMessage() : c_{text_, sizeof text_} {}
  PluginMessage(const PluginMessage&) = delete;
  PluginMessage& operator=(const PluginMessage&) = delete;
  pelton_message* get() { return &c_; }
  std::string str(const char* fallback) const {
    return text_[0] ? std::string(text_) : std::string(fallback);
  }

 private:
  char text_[512] = {};
  pelton_message c_;
};

// The functions of a kernel, of an op or of an implementation.
struct PluginFunctions {
  std::string title;  // for messages
  bool any_layout = false, recorded = true;
  decltype(pelton_implementation::refuse) refuse = nullptr;
  decltype(pelton_implementation::scratch_bytes) scratch_bytes = nullptr;
  decltype(pelton_custom_op::context_bytes) context_bytes = nullptr;
  decltype(pelton_implementation::prepare) prepare = nullptr;
  decltype(pelton_implementation::release) release = nullptr;
  decltype(pelton_implementation::run) run = nullptr;
};

// Why the functions do not take the node; empty if they do.
std::string plugin_refuse(const PluginFunctions& functions, const ir::Graph& graph, ir::NodeId node);
// `functions` must outlive the kernel.
std::unique_ptr<backend::Kernel> plugin_prepare(const PluginFunctions& functions,
                                                const backend::Instance& instance);
// The kernel as the definition of the op, on values of the host.
void plugin_eval(const PluginFunctions& functions, ir::EvalContext& context);

}  // namespace pelton::runtime
