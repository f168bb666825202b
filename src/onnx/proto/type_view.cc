// SPDX-License-Identifier: Apache-2.0
// Types of values in a model.
#include "onnx/proto/model_view_impl.h"

namespace pelton::onnx {

using wire::MessageSpec;
using wire::Reader;
using wire::Span;

namespace {

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

}  // namespace

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

}  // namespace pelton::onnx
