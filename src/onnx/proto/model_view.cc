// SPDX-License-Identifier: Apache-2.0
#include "onnx/proto/model_view.h"

#include "onnx/proto/messages.h"

namespace pelton::onnx {
namespace {

using wire::MessageSpec;
using wire::Reader;
using wire::Span;

// Tables looked up once.
struct Specs {
  MessageSpec model = pb::onnx_message("ModelProto"), opset = pb::onnx_message("OperatorSetIdProto"),
              graph = pb::onnx_message("GraphProto"), value_info = pb::onnx_message("ValueInfoProto"),
              node = pb::onnx_message("NodeProto"), attribute = pb::onnx_message("AttributeProto"),
              function = pb::onnx_message("FunctionProto"), type = pb::onnx_message("TypeProto"),
              tensor_type = pb::onnx_message("TypeProto.Tensor"),
              sequence = pb::onnx_message("TypeProto.Sequence"),
              optional = pb::onnx_message("TypeProto.Optional"), map = pb::onnx_message("TypeProto.Map"),
              shape = pb::onnx_message("TensorShapeProto"),
              dim = pb::onnx_message("TensorShapeProto.Dimension");
};
const Specs& specs() {
  static const Specs all;
  return all;
}

GraphView parse_graph(Span message);
TypeView parse_type(Span message);

// A view takes far more memory than the two bytes of an empty message, so a small hostile file could ask for
// much.
constexpr size_t kMaxMessages = 5'000'000;
thread_local size_t messages_left = 0;

Span counted(Span message) {
  if (messages_left == 0)
    fail(ErrorCode::limit, cat("the file holds more than ", kMaxMessages, " messages"),
         cat("byte ", message.offset()));
  --messages_left;
  return message;
}

DimView parse_dim(Span message) {
  DimView d;
  Reader r(counted(message), specs().dim);
  while (uint32_t field = r.next()) {
    if (field == pb::TensorShapeProto_Dimension::dim_value) d.value = r.integer();
    if (field == pb::TensorShapeProto_Dimension::dim_param) d.param = r.text();
  }
  return d;
}

void parse_tensor_type(Span message, TypeView& t) {
  Reader r(message, specs().tensor_type);
  while (uint32_t field = r.next()) {
    if (field == pb::TypeProto_Tensor::elem_type) {
      t.elem_type = r.integer();
    } else if (field == pb::TypeProto_Tensor::shape) {
      t.has_shape = true;
      t.dims.clear();
      Reader dims(r.message(), specs().shape);
      while (dims.next()) t.dims.push_back(parse_dim(dims.message()));
    }
  }
}

void parse_map_type(Span message, TypeView& t) {
  Reader r(message, specs().map);
  while (uint32_t field = r.next()) {
    if (field == pb::TypeProto_Map::key_type)
      t.elem_type = r.integer();
    else
      t.element = std::make_shared<TypeView>(parse_type(r.message()));
  }
}

TypeView parse_type(Span message) {
  TypeView t;
  Reader r(counted(message), specs().type);
  auto element = [&](const MessageSpec& spec) {
    Reader inner(r.message(), spec);
    while (inner.next()) t.element = std::make_shared<TypeView>(parse_type(inner.message()));
  };
  while (uint32_t field = r.next()) switch (field) {
      case pb::TypeProto::tensor_type:
      case pb::TypeProto::sparse_tensor_type:
        t.kind = field == pb::TypeProto::tensor_type ? TypeView::Kind::tensor : TypeView::Kind::sparse_tensor;
        parse_tensor_type(r.message(), t);
        break;
      case pb::TypeProto::sequence_type:
        t.kind = TypeView::Kind::sequence;
        element(specs().sequence);
        break;
      case pb::TypeProto::optional_type:
        t.kind = TypeView::Kind::optional;
        element(specs().optional);
        break;
      case pb::TypeProto::map_type:
        t.kind = TypeView::Kind::map;
        parse_map_type(r.message(), t);
        break;
      case pb::TypeProto::opaque_type:
        t.kind = TypeView::Kind::opaque;
        break;
    }
  return t;
}

ValueInfoView parse_value_info(Span message) {
  ValueInfoView v;
  Reader r(counted(message), specs().value_info);
  while (uint32_t field = r.next()) {
    if (field == pb::ValueInfoProto::name) v.name = r.text();
    if (field == pb::ValueInfoProto::type) v.type = parse_type(r.message());
  }
  return v;
}

// Files older than IR version 2 leave out the type; it follows from the field that is set.
AttributeView::Type type_of_field(uint32_t field) {
  using Type = AttributeView::Type;
  switch (field) {
    case pb::AttributeProto::f:
      return Type::f;
    case pb::AttributeProto::i:
      return Type::i;
    case pb::AttributeProto::s:
      return Type::s;
    case pb::AttributeProto::t:
      return Type::t;
    case pb::AttributeProto::g:
      return Type::g;
    case pb::AttributeProto::floats:
      return Type::floats;
    case pb::AttributeProto::ints:
      return Type::ints;
    case pb::AttributeProto::strings:
      return Type::strings;
    case pb::AttributeProto::tensors:
      return Type::tensors;
    case pb::AttributeProto::graphs:
      return Type::graphs;
    case pb::AttributeProto::sparse_tensor:
      return Type::sparse_tensor;
    case pb::AttributeProto::sparse_tensors:
      return Type::sparse_tensors;
    case pb::AttributeProto::tp:
      return Type::tp;
    case pb::AttributeProto::type_protos:
      return Type::type_protos;
    default:
      return Type::undefined;
  }
}

AttributeView parse_attribute(Span message) {
  AttributeView a;
  auto seen = AttributeView::Type::undefined;
  Reader r(counted(message), specs().attribute);
  while (uint32_t field = r.next()) {
    if (auto t = type_of_field(field); t != AttributeView::Type::undefined) seen = t;
    switch (field) {
      case pb::AttributeProto::name:
        a.name = r.text();
        break;
      case pb::AttributeProto::ref_attr_name:
        a.ref_attr_name = r.text();
        break;
      case pb::AttributeProto::type:
        if (r.integer() < 0 || r.integer() > 14)
          r.refuse(ErrorCode::bad_format, cat("attribute '", a.name, "' has unknown type ", r.integer()));
        a.type = static_cast<AttributeView::Type>(r.integer());
        break;
      case pb::AttributeProto::f:
        a.f = r.f32();
        break;
      case pb::AttributeProto::i:
        a.i = r.integer();
        break;
      case pb::AttributeProto::s:
        a.s = r.text();
        break;
      case pb::AttributeProto::t:
      case pb::AttributeProto::tensors:
        a.tensors.push_back(parse_tensor_proto(r.message()));
        break;
      case pb::AttributeProto::g:
      case pb::AttributeProto::graphs:
        a.graphs.push_back(std::make_shared<GraphView>(parse_graph(r.message())));
        break;
      case pb::AttributeProto::floats:
        r.append_to(a.floats);
        break;
      case pb::AttributeProto::ints:
        r.append_to(a.ints);
        break;
      case pb::AttributeProto::strings:
        a.strings.push_back(r.text());
        break;
      case pb::AttributeProto::sparse_tensor:
      case pb::AttributeProto::sparse_tensors:
        a.sparse_tensors.push_back(r.message());
        break;
      case pb::AttributeProto::tp:
      case pb::AttributeProto::type_protos:
        a.types.push_back(parse_type(r.message()));
        break;
    }
  }
  if (a.type == AttributeView::Type::undefined) a.type = seen;
  bool complete = true;
  switch (a.type) {
    case AttributeView::Type::t:
      complete = a.tensors.size() == 1;
      break;
    case AttributeView::Type::g:
      complete = a.graphs.size() == 1;
      break;
    case AttributeView::Type::sparse_tensor:
      complete = a.sparse_tensors.size() == 1;
      break;
    case AttributeView::Type::tp:
      complete = a.types.size() == 1;
      break;
    default:
      break;
  }
  if (!complete && a.ref_attr_name.empty())
    fail(ErrorCode::bad_format, cat("attribute '", a.name, "' lacks the value that its type promises"),
         cat("AttributeProto at byte ", message.offset()));
  return a;
}

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
        g.initializers.push_back(parse_tensor_proto(r.message()));
        break;
      case pb::GraphProto::sparse_initializer:
        g.sparse_initializers.push_back(r.message());
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
  Reader r(message, specs().function);
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

ModelView parse_model(std::string_view file) {
  refuse_other_files(file);
  messages_left = kMaxMessages;
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
        m.metadata.push_back(pb::parse_entry(r.message()));
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
