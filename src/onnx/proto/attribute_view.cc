// SPDX-License-Identifier: Apache-2.0
// Attributes of nodes in a model.
#include "onnx/proto/model_view_impl.h"

namespace pelton::onnx {

using wire::Reader;
using wire::Span;

namespace {

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

bool is_complete(const AttributeView& a) {
  switch (a.type) {
    case AttributeView::Type::t:
      return a.tensors.size() == 1;
    case AttributeView::Type::g:
      return a.graphs.size() == 1;
    case AttributeView::Type::sparse_tensor:
      return a.sparse_tensors.size() == 1;
    case AttributeView::Type::tp:
      return a.types.size() == 1;
    default:
      return true;
  }
}

}  // namespace

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
        a.tensors.push_back(parse_tensor_proto(counted(r.message())));
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
        a.sparse_tensors.push_back(counted(r.message()));
        break;
      case pb::AttributeProto::tp:
      case pb::AttributeProto::type_protos:
        a.types.push_back(parse_type(r.message()));
        break;
    }
  }
  if (a.type == AttributeView::Type::undefined) a.type = seen;
  if (!is_complete(a) && a.ref_attr_name.empty())
    fail(ErrorCode::bad_format, cat("attribute '", a.name, "' lacks the value that its type promises"),
         cat("AttributeProto at byte ", message.offset()));
  return a;
}

}  // namespace pelton::onnx
