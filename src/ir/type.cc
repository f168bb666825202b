// SPDX-License-Identifier: Apache-2.0
#include "ir/type.h"

namespace pelton::ir {

std::string Layout::str() const {
  switch (kind) {
    case Kind::plain:
      return "";
    case Kind::channels_last:
      return "nhwc";
    case Kind::blocked:
      return cat("c", block);
  }
  return "";
}

Type Type::tensor(DType dtype, Shape shape) {
  Type t;
  t.dtype = dtype;
  t.shape = std::move(shape);
  return t;
}
Type Type::unranked(DType dtype) {
  Type t;
  t.dtype = dtype;
  t.ranked = false;
  return t;
}
Type Type::sequence(Type element) {
  Type t;
  t.kind = TypeKind::sequence;
  t.element = std::make_shared<const Type>(std::move(element));
  return t;
}
Type Type::sequence_of(std::vector<Type> items, Type element) {
  Type t = sequence(std::move(element));
  t.items = std::make_shared<const std::vector<Type>>(std::move(items));
  return t;
}
Type Type::optional(Type element) {
  Type t = sequence(std::move(element));
  t.kind = TypeKind::optional;
  return t;
}
Type Type::token() {
  Type t;
  t.kind = TypeKind::token;
  return t;
}

bool Type::operator==(const Type& o) const {
  if (kind != o.kind) return false;
  switch (kind) {
    case TypeKind::tensor:
      return dtype == o.dtype && ranked == o.ranked && shape == o.shape && layout == o.layout;
    case TypeKind::token:
      return true;
    default:
      break;
  }
  if (!(*element == *o.element) || !items != !o.items) return false;
  return !items || *items == *o.items;
}

std::string Type::str() const {
  switch (kind) {
    case TypeKind::token:
      return "token";
    case TypeKind::optional:
      return cat("optional<", element->str(), ">");
    case TypeKind::sequence: {
      if (!items) return cat("seq<", element->str(), ">");
      std::string out = cat("seq<", element->str(), ";");
      for (const Type& t : *items) append(out, cat(&t == items->data() ? " " : ", ", t.str()));
      return cat(out, ">");
    }
    case TypeKind::tensor:
      break;
  }
  if (!ranked) return cat(name(dtype), "[?]");
  return layout.is_plain() ? cat(name(dtype), shape) : cat(name(dtype), shape, "{", layout.str(), "}");
}

int64_t physical_bytes(const Type& type, const Dims& dims) {
  if (type.layout.kind != Layout::Kind::blocked || dims.size() < 2)
    return byte_size(type.dtype, element_count(dims));
  Dims padded = dims;
  padded[1] = (padded[1] + type.layout.block - 1) / type.layout.block * type.layout.block;
  return byte_size(type.dtype, element_count(padded));
}

}  // namespace pelton::ir
