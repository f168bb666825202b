// SPDX-License-Identifier: Apache-2.0
// Small ONNX models for tests, written field by field.
#pragma once

#include <string>
#include <vector>

#include "onnx/export/graph_writer.h"
#include "onnx/import/import.h"
#include "onnx/proto/messages.h"

namespace pelton::test {

struct ModelText {
  std::string graph, functions;
  int64_t opset = 21, ir_version = 10;
  std::string opset_domain;  // a second domain to import at version 1

  ModelText& node(std::string_view op, std::vector<std::string> in, std::vector<std::string> out,
                  std::vector<onnx::OnnxAttr> attrs = {}, std::string_view domain = {}) {
    wire::Writer w;
    w.bytes(pb::GraphProto::node, node_bytes(op, in, out, attrs, domain));
    graph += w.data();
    return *this;
  }
  static std::string node_bytes(std::string_view op, const std::vector<std::string>& in,
                                const std::vector<std::string>& out,
                                const std::vector<onnx::OnnxAttr>& attrs = {}, std::string_view domain = {}) {
    wire::Writer n;
    for (const auto& s : in) n.bytes(pb::NodeProto::input, s);
    for (const auto& s : out) n.bytes(pb::NodeProto::output, s);
    n.bytes(pb::NodeProto::name, cat("the_", op));
    n.bytes(pb::NodeProto::op_type, op);
    for (const auto& a : attrs) n.bytes(pb::NodeProto::attribute, a.bytes);
    if (!domain.empty()) n.bytes(pb::NodeProto::domain, domain);
    return n.take();
  }
  ModelText& value(uint32_t field, std::string_view name, const ir::Type& type) {
    wire::Writer info, w;
    info.bytes(pb::ValueInfoProto::name, name);
    info.bytes(pb::ValueInfoProto::type, onnx::type_proto(type));
    w.bytes(field, info.data());
    graph += w.data();
    return *this;
  }
  ModelText& input(std::string_view name, Shape shape, DType t = DType::f32) {
    return value(pb::GraphProto::input, name, ir::Type::tensor(t, std::move(shape)));
  }
  // An output that the model says nothing of.
  ModelText& output(std::string_view name) {
    wire::Writer info, w;
    info.bytes(pb::ValueInfoProto::name, name);
    w.bytes(pb::GraphProto::output, info.data());
    graph += w.data();
    return *this;
  }
  ModelText& output(std::string_view name, Shape shape, DType t = DType::f32) {
    return value(pb::GraphProto::output, name, ir::Type::tensor(t, std::move(shape)));
  }
  ModelText& initializer(std::string_view name, const Tensor& t) {
    wire::Writer w;
    w.bytes(pb::GraphProto::initializer, write_tensor_proto(t, name));
    graph += w.data();
    return *this;
  }
  std::string bytes() const {
    wire::Writer w, set;
    w.integer(pb::ModelProto::ir_version, ir_version);
    w.bytes(pb::ModelProto::graph, graph);
    set.bytes(pb::OperatorSetIdProto::domain, "");
    set.integer(pb::OperatorSetIdProto::version, opset);
    if (opset) w.bytes(pb::ModelProto::opset_import, set.data());
    return w.data() + functions;
  }
  ir::Graph import(const onnx::ImportOptions& options = {}) const {
    auto owner = std::make_shared<std::string>(bytes());
    return std::move(onnx::import_bytes(*owner, owner, "", options).graph);
  }
};

}  // namespace pelton::test
