// SPDX-License-Identifier: Apache-2.0
// IR to ONNX. Every forward graph of standard ops can be written; composites that ONNX lacks are decomposed.
// Symbolic sizes become arithmetic over Shape.
#pragma once

#include <string>

#include "ir/graph.h"

namespace pelton::onnx {

inline constexpr int64_t kOldestWritten = 18, kNewestWritten = 28;  // that ops are written in

struct ExportOptions {
  int64_t opset = 23;  // at least; raised where a type or an op needs a newer one
  std::string producer = "pelton";
};

// The bytes of a model file. unsupported_op names a node that ONNX cannot express.
std::string export_model(const ir::Graph& graph, const ExportOptions& options = {});
void export_file(const ir::Graph& graph, const std::string& path, const ExportOptions& options = {});

}  // namespace pelton::onnx
