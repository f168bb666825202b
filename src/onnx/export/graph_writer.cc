// SPDX-License-Identifier: Apache-2.0
#include "onnx/export/graph_writer.h"

#include "onnx/proto/messages.h"
#include "onnx/proto/model_view.h"
#include "tensor/tensor_pb.h"

namespace pelton::onnx {
namespace {

using Kind = AttributeView::Type;

wire::Writer start(std::string_view name, Kind type) {
  wire::Writer w;
  w.bytes(pb::AttributeProto::name, name);
  w.integer(pb::AttributeProto::type, static_cast<int64_t>(type));
  return w;
}

std::string value_info(std::string_view name, const ir::Type& type) {
  wire::Writer w;
  w.bytes(pb::ValueInfoProto::name, name);
  w.bytes(pb::ValueInfoProto::type, type_proto(type));
  return w.take();
}

void add_field(std::string& to, uint32_t number, std::string_view message) {
  wire::Writer w;
  w.bytes(number, message);
  to += w.data();
}

}  // namespace

OnnxAttr attr(std::string_view name, int64_t v) {
  wire::Writer w = start(name, Kind::i);
  w.integer(pb::AttributeProto::i, v);
  return {w.take()};
}
OnnxAttr attr(std::string_view name, bool v) {
  return attr(name, int64_t{v});
}
OnnxAttr attr(std::string_view name, double v) {
  wire::Writer w = start(name, Kind::f);
  w.f32(pb::AttributeProto::f, static_cast<float>(v));
  return {w.take()};
}
OnnxAttr attr(std::string_view name, std::string_view v) {
  wire::Writer w = start(name, Kind::s);
  w.bytes(pb::AttributeProto::s, v);
  return {w.take()};
}
OnnxAttr attr(std::string_view name, const char* v) {
  return attr(name, std::string_view(v));
}
OnnxAttr attr(std::string_view name, const std::vector<int64_t>& v) {
  wire::Writer w = start(name, Kind::ints);
  for (int64_t x : v) w.integer(pb::AttributeProto::ints, x);
  return {w.take()};
}
OnnxAttr attr(std::string_view name, const std::vector<double>& v) {
  wire::Writer w = start(name, Kind::floats);
  for (double x : v) w.f32(pb::AttributeProto::floats, static_cast<float>(x));
  return {w.take()};
}
OnnxAttr attr(std::string_view name, const std::vector<std::string>& v) {
  wire::Writer w = start(name, Kind::strings);
  for (const std::string& x : v) w.bytes(pb::AttributeProto::strings, x);
  return {w.take()};
}
OnnxAttr attr(std::string_view name, const Tensor& v) {
  wire::Writer w = start(name, Kind::t);
  w.bytes(pb::AttributeProto::t, write_tensor_proto(v, ""));
  return {w.take()};
}
OnnxAttr attr(std::string_view name, DType t) {
  return attr(name, int64_t{onnx_from_dtype(t)});
}
OnnxAttr graph_attr(std::string_view name, std::string graph) {
  wire::Writer w = start(name, Kind::g);
  w.bytes(pb::AttributeProto::g, graph);
  return {w.take()};
}
OnnxAttr type_attr(std::string_view name, const ir::Type& type) {
  wire::Writer w = start(name, Kind::tp);
  w.bytes(pb::AttributeProto::tp, type_proto(type));
  return {w.take()};
}

std::string type_proto(const ir::Type& type) {
  wire::Writer w, inner;
  if (type.is_tensor()) {
    inner.integer(pb::TypeProto_Tensor::elem_type, onnx_from_dtype(type.dtype));
    if (type.ranked) {
      wire::Writer shape;
      for (const Dim& d : type.shape) {
        wire::Writer dim;
        if (d.is_const())
          dim.integer(pb::TensorShapeProto_Dimension::dim_value, d.value());
        else if (auto symbol = d.as_symbol())
          dim.bytes(pb::TensorShapeProto_Dimension::dim_param, *symbol);
        shape.bytes(pb::TensorShapeProto::dim, dim.data());
      }
      inner.bytes(pb::TypeProto_Tensor::shape, shape.data());
    }
    w.bytes(pb::TypeProto::tensor_type, inner.data());
    return w.take();
  }
  bool sequence = type.kind == ir::TypeKind::sequence;
  inner.bytes(pb::TypeProto_Sequence::elem_type, type_proto(*type.element));
  w.bytes(sequence ? pb::TypeProto::sequence_type : pb::TypeProto::optional_type, inner.data());
  return w.take();
}

std::string WriterState::fresh(std::string_view hint) {
  std::string name(hint);
  while (name.empty() || !taken.insert(name).second) name = cat(hint, hint.empty() ? "v" : "_", ++counter);
  return name;
}

namespace {

// Operator sets that brought an op, or the form of it that is written here, after kOldestWritten.
constexpr std::pair<std::string_view, int64_t> kSince[] = {
    {"AffineGrid", 20},   {"Attention", 23},   {"AveragePool", 19},    {"BitCast", 26},
    {"CumProd", 26},      {"DFT", 20},         {"DeformConv", 19},     {"DequantizeLinear", 21},
    {"Gelu", 20},         {"GridSample", 20},  {"QuantizeLinear", 21}, {"RegexFullMatch", 20},
    {"StringConcat", 20}, {"StringSplit", 20}, {"TensorScatter", 24},
};

}  // namespace

void GraphWriter::need_opset(int64_t version) {
  if (version > state_.opset) state_.opset = version;
}

Name GraphWriter::op(std::string_view type, std::vector<Name> inputs, std::vector<OnnxAttr> attrs) {
  return ops(type, std::move(inputs), std::move(attrs), 1)[0];
}

std::vector<Name> GraphWriter::ops(std::string_view type, std::vector<Name> inputs,
                                   std::vector<OnnxAttr> attrs, size_t results, std::string_view domain) {
  wire::Writer w;
  if (domain.empty())
    for (const auto& [op, since] : kSince)
      if (op == type) need_opset(since);
  while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
  for (const Name& n : inputs) w.bytes(pb::NodeProto::input, n);
  std::vector<Name> out;
  for (size_t i = 0; i < results; ++i) {
    out.push_back(state_.fresh(node_name_));
    w.bytes(pb::NodeProto::output, out.back());
  }
  if (!out.empty()) w.bytes(pb::NodeProto::name, out[0]);  // unique, as some runtimes demand
  w.bytes(pb::NodeProto::op_type, type);
  if (!domain.empty()) w.bytes(pb::NodeProto::domain, domain);
  for (const OnnxAttr& a : attrs) w.bytes(pb::NodeProto::attribute, a.bytes);
  add_field(nodes_, pb::GraphProto::node, w.data());
  return out;
}

Name GraphWriter::ml_op(std::string_view type, std::vector<Name> inputs, std::vector<OnnxAttr> attrs) {
  state_.domains["ai.onnx.ml"] = 5;
  return ops(type, std::move(inputs), std::move(attrs), 1, "ai.onnx.ml")[0];
}

Name GraphWriter::constant(const Tensor& value) {
  Name name = state_.fresh("c");
  add_field(initializers_, pb::GraphProto::initializer, write_tensor_proto(value, name));
  return name;
}

Name GraphWriter::named_copy(const Name& from, std::string_view name) {
  wire::Writer w;
  w.bytes(pb::NodeProto::input, from);
  w.bytes(pb::NodeProto::output, name);
  w.bytes(pb::NodeProto::op_type, "Identity");
  add_field(nodes_, pb::GraphProto::node, w.data());
  return Name(name);
}

void GraphWriter::add_input(std::string_view name, const ir::Type& type) {
  add_field(inputs_, pb::GraphProto::input, value_info(name, type));
}
void GraphWriter::add_output(std::string_view name, const ir::Type& type) {
  add_field(outputs_, pb::GraphProto::output, value_info(name, type));
}

std::string GraphWriter::finish() {
  wire::Writer w;
  w.bytes(pb::GraphProto::name, name_);
  return nodes_ + w.data() + initializers_ + inputs_ + outputs_;
}

}  // namespace pelton::onnx
