// SPDX-License-Identifier: Apache-2.0
#include "onnx/export/export_context.h"

#include "onnx/export/exporter.h"

namespace pelton::onnx {

Name ExportContext::in(size_t i) const {
  return has(i) ? exporter.name_of(node.inputs[i]) : Name();
}

std::vector<Name> ExportContext::all_inputs() const {
  std::vector<Name> out;
  for (size_t i = 0; i < node.inputs.size(); ++i) out.push_back(in(i));
  return out;
}

Name ExportContext::size(const Dim& d) {
  return exporter.size(d);
}

Name ExportContext::sizes(const Shape& dims) {
  if (auto known = as_dims(dims)) return w.ints(*known);
  std::vector<Name> parts;
  for (const Dim& d : dims)
    parts.push_back(d.is_const() ? w.ints({d.value()}) : w.op("Reshape", {exporter.size(d), w.ints({1})}));
  if (parts.size() == 1) return parts[0];
  return w.op("Concat", parts, {attr("axis", int64_t{0})});
}

std::vector<int64_t> ExportContext::fixed(const Shape& dims, std::string_view what) const {
  auto known = as_dims(dims);
  if (!known) refuse(cat(what, " ", cat(dims), " depends on the input sizes"));
  return *known;
}

void ExportContext::refuse(std::string_view why) const {
  fail(ErrorCode::unsupported_op, cat("ONNX cannot express this: ", why));
}

const ExportTable& export_table() {
  static const ExportTable table = [] {
    ExportTable t;
    export_pointwise(t);
    export_shape(t);
    export_contract(t);
    export_composite(t);
    export_control(t);
    export_edge(t);
    export_custom(t);
    return t;
  }();
  return table;
}

}  // namespace pelton::onnx
