// SPDX-License-Identifier: Apache-2.0
// Attributes of nodes: a small closed set of value kinds, each with one text form.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tensor/dim.h"
#include "tensor/tensor.h"

namespace pelton::ir {

class Graph;
using GraphPtr = std::shared_ptr<const Graph>;  // a closed sub-graph; never changed while shared
using Ints = std::vector<int64_t>;
using Floats = std::vector<double>;
using Strings = std::vector<std::string>;

// Order is part of the binary form; append only.
using Attr =
    std::variant<int64_t, double, bool, std::string, DType, Ints, Floats, Strings, Shape, Tensor, GraphPtr>;
enum class AttrKind : uint8_t {
  integer,
  real,
  boolean,
  text,
  dtype,
  ints,
  floats,
  strings,
  dims,
  tensor,
  graph
};
inline AttrKind kind(const Attr& a) {
  return static_cast<AttrKind>(a.index());
}
std::string_view name(AttrKind kind);

using Attrs = std::map<std::string, Attr, std::less<>>;
bool equal(const Attr& a, const Attr& b);  // tensors bit by bit, graphs by their text

}  // namespace pelton::ir
