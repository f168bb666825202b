// SPDX-License-Identifier: Apache-2.0
#include "onnx/import/input_sizes.h"

#include <algorithm>
#include <set>

namespace pelton::onnx {

std::string symbol_name(std::string_view text) {
  std::string out;
  for (char c : text) {
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    bool tail = letter || (c >= '0' && c <= '9') || c == '.';
    if (out.empty() && !letter && tail) out.push_back('_');
    out.push_back(tail ? c : '_');
  }
  if (!Dim::is_symbol_name(out)) out = cat("_", out);
  return out;
}

std::string symbol_of(const DimView& view, std::string_view name, size_t axis) {
  return view.param.empty() ? cat(symbol_name(name), ".", axis) : symbol_name(view.param);
}

namespace {

void fix(FixedSizes& fixed, const ValueInfoView& input, const InputSizes& sizes) {
  const std::vector<DimView>& dims = input.type.dims;
  if (dims.size() != sizes.size())
    fail(ErrorCode::bad_shape, cat("input '", input.name, "' has rank ", dims.size(), ", not ", sizes.size()),
         "--shape");
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!sizes[i]) continue;
    if (dims[i].value && *dims[i].value >= 0) {
      if (*dims[i].value != *sizes[i])
        fail(ErrorCode::bad_shape,
             cat("axis ", i, " of input '", input.name, "' is fixed at ", *dims[i].value,
                 " by the model, it cannot be ", *sizes[i]),
             "--shape");
      continue;
    }
    auto [at, fresh] = fixed.emplace(symbol_of(dims[i], input.name, i), *sizes[i]);
    if (!fresh && at->second != *sizes[i])
      fail(ErrorCode::bad_shape,
           cat("axis ", i, " of input '", input.name, "' (", at->first, ") cannot be ", *sizes[i],
               ": another axis of that name is ", at->second),
           "--shape", "sizes with one name must agree");
  }
}

}  // namespace

FixedSizes fixed_sizes(const GraphView& graph, const ImportOptions& options) {
  FixedSizes fixed;
  if (options.fixed_sizes.empty()) return fixed;
  std::set<std::string_view> defaults;  // names of inputs that have a value in the file
  for (const auto& t : graph.initializers) defaults.insert(t.name);
  std::map<std::string_view, const ValueInfoView*> inputs;
  std::string names;
  for (const ValueInfoView& v : graph.inputs) {
    if (defaults.count(v.name)) continue;
    inputs[v.name] = &v;
    append(names, cat(names.empty() ? "" : ", ", "'", v.name, "'"));
  }
  for (const auto& [name, sizes] : options.fixed_sizes) {
    auto it = inputs.find(name);
    if (it == inputs.end())
      fail(ErrorCode::bad_name, cat("the model has no input '", name, "'"), "--shape",
           cat("its inputs are ", names));
    if (it->second->type.has_shape) fix(fixed, *it->second, sizes);
  }
  return fixed;
}

}  // namespace pelton::onnx
