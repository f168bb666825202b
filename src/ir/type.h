// SPDX-License-Identifier: Apache-2.0
// Types of IR values: tensors with symbolic dims, sequences, optionals, ordering tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensor/dim.h"
#include "tensor/dtype.h"

namespace pelton::ir {

// How the elements of a tensor lie in memory. Logical dims never change with the layout.
//   plain          row-major
//   channels_last  [N, C, spatial...] stored as [N, spatial..., C]
//   blocked        [N, C, spatial...] stored as [N, ceil(C/block), spatial..., block], padded with zeros
struct Layout {
  enum class Kind : uint8_t { plain, channels_last, blocked } kind = Kind::plain;
  uint8_t block = 0;
  bool is_plain() const { return kind == Kind::plain; }
  bool operator==(const Layout&) const = default;
  std::string str() const;  // "", "nhwc", "c16"
};

enum class TypeKind : uint8_t { tensor, sequence, optional, token };

struct Type {
  TypeKind kind = TypeKind::tensor;
  DType dtype = DType::f32;                        // tensor
  bool ranked = true;                              // false only for graph inputs not yet specialised
  Shape shape;                                     // tensor
  Layout layout;                                   // tensor
  std::shared_ptr<const Type> element;             // sequence, optional: the common type of what is inside
  std::shared_ptr<const std::vector<Type>> items;  // sequence of static length: each element's own type

  static Type tensor(DType dtype, Shape shape);
  static Type unranked(DType dtype);
  static Type sequence(Type element);
  static Type sequence_of(std::vector<Type> items, Type element);
  static Type optional(Type element);
  static Type token();

  bool is_tensor() const { return kind == TypeKind::tensor; }
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  bool operator==(const Type& other) const;
  std::string str() const;  // f32[N,3]{nhwc}, seq<f32[?]>, optional<i64[]>, token
};

// Bytes of a tensor at these sizes in its physical layout (block padding included).
int64_t physical_bytes(const Type& type, const Dims& dims);

}  // namespace pelton::ir
