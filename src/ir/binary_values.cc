// SPDX-License-Identifier: Apache-2.0
#include "ir/binary_values.h"

#include <cstring>

#include "ir/binary.h"

namespace pelton::ir {

Dim ValueReader::dim() {
  if (!flag()) return Dim(s());
  std::string_view t = text();
  auto it = parsed_.find(t);
  if (it == parsed_.end()) it = parsed_.emplace(t, Dim::parse(t)).first;
  return it->second;
}

Shape ValueReader::dims() {
  Shape shape(count(2));
  for (Dim& d : shape) d = dim();
  return shape;
}

Type ValueReader::type(int depth) {
  if (depth > kMaxDepth) bad("types are nested too deep");
  Type t;
  t.kind = choice<TypeKind>(3, "type");
  switch (t.kind) {
    case TypeKind::tensor:
      t.dtype = dtype();
      t.ranked = flag();
      t.shape = dims();
      t.layout.kind = choice<Layout::Kind>(2, "layout");
      t.layout.block = choice<uint8_t>(64, "block");
      if ((t.layout.kind == Layout::Kind::blocked) != (t.layout.block > 0) ||
          (!t.layout.is_plain() && t.shape.size() < 2))
        bad("a layout does not fit its type");
      return t;
    case TypeKind::sequence: {
      Type element = type(depth + 1);
      if (!flag()) return Type::sequence(std::move(element));
      std::vector<Type> items;
      for (size_t n = count(1); n > 0; --n) items.push_back(type(depth + 1));
      return Type::sequence_of(std::move(items), std::move(element));
    }
    case TypeKind::optional:
      return Type::optional(type(depth + 1));
    case TypeKind::token:
      return Type::token();
  }
  return t;
}

Tensor ValueReader::tensor() {
  DType t = dtype();
  Dims sizes(count(1));
  for (int64_t& d : sizes) {
    uint64_t v = u();
    if (v > INT64_MAX) bad("a size is too large");
    d = static_cast<int64_t>(v);
  }
  int64_t elements = element_count(sizes);
  switch (choice<int>(2, "place of a tensor")) {
    case 0: {
      if (t == DType::string) bad("strings are not stored as bytes");
      int64_t size = byte_size(t, elements);
      if (size > kInlineTensorBytes) bad("a large tensor stands in the graph");
      Tensor out = Tensor::zeros(t, sizes);
      std::string_view data = raw(static_cast<size_t>(size));
      if (size) std::memcpy(out.mutable_data(), data.data(), data.size());
      return out;
    }
    case 1:
      if (t == DType::string) bad("strings are not stored as bytes");
      return fetch_(u(), t, sizes);
    default: {
      if (t != DType::string || static_cast<uint64_t>(elements) > left())
        bad("a tensor of strings does not fit");
      std::vector<std::string> items;
      for (int64_t i = 0; i < elements; ++i) items.emplace_back(text());
      return Tensor::of_strings(sizes, std::move(items));
    }
  }
}

}  // namespace pelton::ir
