// SPDX-License-Identifier: Apache-2.0
// Appends ONNX nodes to a graph under construction and hands out value names.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/type.h"
#include "tensor/tensor.h"

namespace pelton::onnx {

using Name = std::string;  // of an ONNX value; empty: an absent optional input

// One attribute, already encoded.
struct OnnxAttr {
  std::string bytes;
};
OnnxAttr attr(std::string_view name, int64_t v);
OnnxAttr attr(std::string_view name, bool v);
OnnxAttr attr(std::string_view name, double v);
OnnxAttr attr(std::string_view name, std::string_view v);
OnnxAttr attr(std::string_view name, const char* v);
OnnxAttr attr(std::string_view name, const std::vector<int64_t>& v);
OnnxAttr attr(std::string_view name, const std::vector<double>& v);
OnnxAttr attr(std::string_view name, const std::vector<std::string>& v);
OnnxAttr attr(std::string_view name, const Tensor& v);
OnnxAttr graph_attr(std::string_view name, std::string graph);
OnnxAttr type_attr(std::string_view name, const ir::Type& type);
OnnxAttr attr(std::string_view name, DType t);  // its TensorProto number

// Names shared by a graph and its sub-graphs, and the newest operator set that some op needed.
struct WriterState {
  std::set<std::string, std::less<>> taken;
  uint64_t counter = 0;
  int64_t opset = 0;
  std::map<std::string, int64_t> domains;  // besides the default one, with their operator sets
  std::string fresh(std::string_view hint);
};

class GraphWriter {
 public:
  GraphWriter(WriterState& state, std::string name) : state_(state), name_(std::move(name)) {}
  WriterState& state() { return state_; }
  void need_opset(int64_t version);
  void set_node_name(std::string_view name) { node_name_ = name; }

  Name op(std::string_view type, std::vector<Name> inputs, std::vector<OnnxAttr> attrs = {});
  std::vector<Name> ops(std::string_view type, std::vector<Name> inputs, std::vector<OnnxAttr> attrs,
                        size_t results, std::string_view domain = {});
  Name ml_op(std::string_view type, std::vector<Name> inputs, std::vector<OnnxAttr> attrs);
  Name constant(const Tensor& value);  // an initializer
  Name ints(const std::vector<int64_t>& v) {
    return constant(Tensor::from<int64_t>({static_cast<int64_t>(v.size())}, v));
  }
  Name integer(int64_t v) { return constant(Tensor::scalar(v)); }
  Name scalar(DType t, double v) { return constant(Tensor::full(t, {}, v)); }
  Name named_copy(const Name& from, std::string_view name);  // Identity with a given result name
  void add_input(std::string_view name, const ir::Type& type);
  void add_output(std::string_view name, const ir::Type& type);
  std::string finish();  // GraphProto

 private:
  WriterState& state_;
  std::string name_, node_name_;
  std::string nodes_, initializers_, inputs_, outputs_;
};

std::string type_proto(const ir::Type& type);

}  // namespace pelton::onnx
