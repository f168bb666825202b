// SPDX-License-Identifier: Apache-2.0
// ONNX to IR. Every op lowers to IR ops through ir::Builder, in the file of its family; the table of families
// is in table.h. Tensor bytes stay in the mapped file; nodes that no output needs are left out.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "onnx/proto/external_data.h"
#include "onnx/proto/model_view.h"

namespace pelton::onnx {

using InputSizes = std::vector<std::optional<int64_t>>;  // by axis; none: stays open

struct ImportOptions {
  // Shapes that replace what the model declares for an input; needed for inputs without a rank.
  std::map<std::string, Shape, std::less<>> input_shapes;
  // Sizes that inputs will have. An open size that is fixed here is that number wherever its name occurs; an
  // input without a rank has as many axes as sizes.
  std::map<std::string, InputSizes, std::less<>> fixed_sizes;
  // Element types, for files that leave them out.
  std::map<std::string, DType, std::less<>> input_types;
  // Values of inputs. Where an op cannot do without one (axes, sizes), the graph is specialised to it.
  std::map<std::string, Tensor, std::less<>> input_values;
};

struct Imported {
  ir::Graph graph;
  int64_t ir_version = 0, opset = 0;  // opset of the default domain
  std::map<std::string, int64_t> opsets;
  std::string producer, doc;
  std::map<std::string, std::string> metadata;
  std::vector<std::string> fixed_inputs;  // the graph holds only for the values given for these
};

// Errors carry the file, the node and the reason. The graph keeps the file mapped for as long as it needs it.
Imported import_file(const std::string& path, const ImportOptions& options = {});
// A model in memory; `owner` keeps the bytes alive. External data is looked for in `folder` (empty: refused).
Imported import_bytes(std::string_view bytes, std::shared_ptr<const void> owner, const std::string& folder,
                      const ImportOptions& options = {});

inline constexpr int64_t kNewestOpset = 28;  // of ai.onnx

}  // namespace pelton::onnx
