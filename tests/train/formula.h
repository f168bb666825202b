// SPDX-License-Identifier: Apache-2.0
// Weights and inputs as a formula of name and index; tests/train/expect/formula.py is the same in Python.
#pragma once

#include <zlib.h>

#include <cmath>
#include <string>

#include "ir/graph.h"
#include "tensor/tensor.h"

namespace pelton::test {

// [-1, 1), multiples of 2^-23.
inline float uniform(const std::string& name, int64_t i) {
  auto crc = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(name.data()), static_cast<uInt>(name.size())));
  uint32_t h = static_cast<uint32_t>(static_cast<uint64_t>(i) * 2654435761u) + crc;
  h = (h ^ (h >> 16)) * 0x45D9F3B;
  h = (h ^ (h >> 16)) * 0x45D9F3B;
  h = h ^ (h >> 16);
  return static_cast<float>(static_cast<double>(h >> 8) * 0x1p-23 - 1.0);
}

inline Tensor uniform_tensor(const std::string& name, const Dims& dims) {
  Tensor t(DType::f32, dims);
  float* out = t.as_mutable<float>();
  for (int64_t i = 0; i < t.count(); ++i) out[i] = uniform(name, i);
  return t;
}

inline Tensor tokens(const std::string& name, const Dims& dims, int64_t count) {
  Tensor t(DType::i64, dims);
  int64_t* out = t.as_mutable<int64_t>();
  for (int64_t i = 0; i < t.count(); ++i)
    out[i] = std::min(
        static_cast<int64_t>((static_cast<double>(uniform(name, i)) + 1) / 2 * static_cast<double>(count)),
        count - 1);
  return t;
}

inline Tensor formula_parameter(const std::string& name, const Dims& dims) {
  Tensor t = uniform_tensor(name, dims);
  float* v = t.as_mutable<float>();
  float factor = 0.1f, offset = 0;
  if (name.ends_with("running_var")) {
    factor = 0.25f, offset = 1.25f;
  } else if (dims.size() >= 2) {
    double fan = 1;
    for (size_t i = 1; i < dims.size(); ++i) fan *= static_cast<double>(dims[i]);
    factor = static_cast<float>(std::sqrt(3.0 / fan));
  } else if (name.ends_with("weight")) {
    offset = 1;
  }
  for (int64_t i = 0; i < t.count(); ++i) v[i] = offset + factor * v[i];
  return t;
}

// Parameters and statistics of a graph; returns "name AxBxC" lines in order of name.
inline std::string fill(ir::Graph& graph) {
  std::map<std::string, std::string> lines;
  for (ir::Slot& s : graph.slots) {
    if (s.kind != ir::SlotKind::parameter && s.kind != ir::SlotKind::statistic) continue;
    Dims dims = *as_dims(s.type.shape);
    s.initial = formula_parameter(s.name, dims);
    std::string text;
    for (size_t i = 0; i < dims.size(); ++i) append(text, cat(i ? "x" : "", dims[i]));
    lines[s.name] = text;
  }
  std::string out;
  for (const auto& [name, text] : lines) append(out, cat(name, " ", text, "\n"));
  return out;
}

}  // namespace pelton::test
