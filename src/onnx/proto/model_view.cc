// SPDX-License-Identifier: Apache-2.0
#include "onnx/proto/model_view.h"

#include "onnx/proto/model_view_impl.h"

namespace pelton::onnx {

using wire::Reader;
using wire::Span;

namespace {

thread_local size_t messages_left = 0;

NodeView parse_node(Span message) {
  NodeView n;
  n.offset = message.offset();
  Reader r(counted(message), specs().node);
  while (uint32_t field = r.next()) switch (field) {
      case pb::NodeProto::input:
        n.inputs.push_back(r.text());
        break;
      case pb::NodeProto::output:
        n.outputs.push_back(r.text());
        break;
      case pb::NodeProto::name:
        n.name = r.text();
        break;
      case pb::NodeProto::op_type:
        n.op_type = r.text();
        break;
      case pb::NodeProto::domain:
        n.domain = r.text();
        break;
      case pb::NodeProto::overload:
        n.overload = r.text();
        break;
      case pb::NodeProto::attribute:
        n.attributes.push_back(parse_attribute(r.message()));
        break;
    }
  if (n.domain == "ai.onnx") n.domain = {};
  return n;
}

void parse_opset(Span message, OpsetMap& into) {
  std::string_view domain;
  int64_t version = 0;
  Reader r(message, specs().opset);
  while (uint32_t field = r.next()) {
    if (field == pb::OperatorSetIdProto::domain)
      domain = r.text();
    else
      version = r.integer();
  }
  if (domain == "ai.onnx") domain = {};
  if (version < 1)
    fail(ErrorCode::bad_format, cat("operator set ", version, " of domain '", domain, "' does not exist"),
         "opset_import");
  auto [it, fresh] = into.emplace(domain, version);
  if (!fresh && it->second != version)
    fail(ErrorCode::bad_format,
         cat("operator sets ", it->second, " and ", version, " of domain '", domain, "' at once"),
         "opset_import");
}

FunctionView parse_function(Span message) {
  FunctionView f;
  Reader r(counted(message), specs().function);
  while (uint32_t field = r.next()) switch (field) {
      case pb::FunctionProto::name:
        f.name = r.text();
        break;
      case pb::FunctionProto::domain:
        f.domain = r.text();
        break;
      case pb::FunctionProto::overload:
        f.overload = r.text();
        break;
      case pb::FunctionProto::input:
        f.inputs.push_back(r.text());
        break;
      case pb::FunctionProto::output:
        f.outputs.push_back(r.text());
        break;
      case pb::FunctionProto::attribute:
        f.attributes.push_back(r.text());
        break;
      case pb::FunctionProto::attribute_proto:
        f.defaults.push_back(parse_attribute(r.message()));
        break;
      case pb::FunctionProto::node:
        f.nodes.push_back(parse_node(r.message()));
        break;
      case pb::FunctionProto::opset_import:
        parse_opset(r.message(), f.opsets);
        break;
    }
  if (f.domain == "ai.onnx") f.domain = {};
  return f;
}

// What a file that is not a model most often is.
void refuse_other_files(std::string_view file) {
  if (file.empty())
    fail(ErrorCode::bad_format, "the file is empty", {}, "download or export the model again");
  if (file.starts_with("version https://git-lfs"))
    fail(ErrorCode::bad_format, "the file is a Git LFS pointer, not the model itself", {},
         "run `git lfs install` and `git lfs pull` in the repository it came from");
  if (file.starts_with("PK\x03\x04"))
    fail(ErrorCode::bad_format, "the file is a zip archive (a PyTorch checkpoint is one), not an ONNX model",
         {}, "export the model to ONNX first");
  if (file.starts_with("<!DOCTYPE") || file.starts_with("<html"))
    fail(ErrorCode::bad_format, "the file is a web page, not an ONNX model", {}, "download the raw file");
}

}  // namespace

const Specs& specs() {
  static const Specs all;
  return all;
}

void start_count() {
  messages_left = kMaxMessages;
}

Span counted(Span message) {
  if (messages_left == 0)
    fail(ErrorCode::limit, cat("the file holds more than ", kMaxMessages, " messages"),
         cat("byte ", message.offset()));
  --messages_left;
  return message;
}

GraphView parse_graph(Span message) {
  GraphView g;
  Reader r(counted(message), specs().graph);
  while (uint32_t field = r.next()) switch (field) {
      case pb::GraphProto::node:
        g.nodes.push_back(parse_node(r.message()));
        break;
      case pb::GraphProto::name:
        g.name = r.text();
        break;
      case pb::GraphProto::initializer:
        g.initializers.push_back(parse_tensor_proto(counted(r.message())));
        break;
      case pb::GraphProto::sparse_initializer:
        g.sparse_initializers.push_back(counted(r.message()));
        break;
      case pb::GraphProto::input:
        g.inputs.push_back(parse_value_info(r.message()));
        break;
      case pb::GraphProto::output:
        g.outputs.push_back(parse_value_info(r.message()));
        break;
      case pb::GraphProto::value_info:
        g.value_infos.push_back(parse_value_info(r.message()));
        break;
    }
  return g;
}

ModelView parse_model(std::string_view file) {
  refuse_other_files(file);
  start_count();
  ModelView m;
  bool has_graph = false;
  Reader r(wire::whole(file), specs().model);
  while (uint32_t field = r.next()) switch (field) {
      case pb::ModelProto::ir_version:
        m.ir_version = r.integer();
        break;
      case pb::ModelProto::producer_name:
        m.producer_name = r.text();
        break;
      case pb::ModelProto::producer_version:
        m.producer_version = r.text();
        break;
      case pb::ModelProto::domain:
        m.domain = r.text();
        break;
      case pb::ModelProto::model_version:
        m.model_version = r.integer();
        break;
      case pb::ModelProto::doc_string:
        m.doc_string = r.text();
        break;
      case pb::ModelProto::graph:
        m.graph = parse_graph(r.message());
        has_graph = true;
        break;
      case pb::ModelProto::opset_import:
        parse_opset(r.message(), m.opsets);
        break;
      case pb::ModelProto::metadata_props:
        m.metadata.push_back(pb::parse_entry(counted(r.message())));
        break;
      case pb::ModelProto::functions:
        m.functions.push_back(parse_function(r.message()));
        break;
      case pb::ModelProto::training_info:
        m.has_training_info = true;
        break;
    }
  if (!has_graph)
    fail(ErrorCode::bad_format, "the file holds no graph", "ModelProto",
         "the file is damaged or not an ONNX model");
  return m;
}

}  // namespace pelton::onnx
