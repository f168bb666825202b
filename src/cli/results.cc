// SPDX-License-Identifier: Apache-2.0
#include "cli/results.h"

#include "base/cat.h"
#include "cli/inputs.h"

namespace pelton::cli {
namespace {

void collect(const ir::HostValue& value, const std::string& name, const std::string& file,
             std::vector<ResultTensor>& out) {
  switch (value.kind) {
    case ir::TypeKind::tensor:
      out.push_back({name, value.tensor.str(), file, value.tensor});
      return;
    case ir::TypeKind::optional:
      for (const ir::HostValue& item : value.items) collect(item, name, file, out);
      return;
    case ir::TypeKind::sequence:
      for (size_t i = 0; i < value.items.size(); ++i)
        collect(value.items[i], cat(name, "/", i), cat(file, "/", i), out);
      return;
    default:
      fail(ErrorCode::bad_type, "the result is no tensor and cannot be written", cat("output '", name, "'"));
  }
}

}  // namespace

std::vector<ResultTensor> result_tensors(const ir::Graph& graph, const std::vector<ir::HostValue>& outputs) {
  std::vector<std::string> names;
  for (size_t i = 0; i < outputs.size(); ++i) names.push_back(graph.output_name(i));
  const std::vector<std::string> files = file_names(names);
  std::vector<ResultTensor> out;
  for (size_t i = 0; i < outputs.size(); ++i) {
    collect(outputs[i], names[i], files[i], out);
    if (outputs[i].kind == ir::TypeKind::tensor) out.back().type = graph.type(graph.outputs[i]).str();
  }
  return out;
}

}  // namespace pelton::cli
