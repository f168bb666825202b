// SPDX-License-Identifier: Apache-2.0
#include "cli/conform/cases.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "onnx/export/export.h"

namespace pelton::cli {
namespace {

namespace fs = std::filesystem;

Tolerance read_tolerance(const std::string& folder) {
  Tolerance t;
  std::string path = cat(folder, "/data.json");
  if (!file_exists(path)) return t;
  auto json = nlohmann::json::parse(read_file(path), nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail(ErrorCode::bad_format, "not a JSON object", path);
  if (json.contains("rtol") && json["rtol"].is_number()) t.rtol = json["rtol"].get<double>();
  if (json.contains("atol") && json["atol"].is_number()) t.atol = json["atol"].get<double>();
  return t;
}

void search(const fs::path& folder, int depth, std::vector<Case>& out) {
  if (fs::exists(folder / "model.onnx")) {
    out.push_back({folder.filename().string(), folder.string(), read_tolerance(folder.string())});
    return;
  }
  if (depth == 0 || !fs::is_directory(folder)) return;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory()) search(entry.path(), depth - 1, out);
}

PbValue::Kind kind_of(const onnx::TypeView& type) {
  switch (type.kind) {
    case onnx::TypeView::Kind::sequence:
      return PbValue::Kind::sequence;
    case onnx::TypeView::Kind::optional:
      return PbValue::Kind::optional;
    case onnx::TypeView::Kind::map:
      return PbValue::Kind::map;
    default:
      return PbValue::Kind::tensor;
  }
}

PbValue load(const std::string& path, PbValue::Kind kind) {
  return with_place(path, [&] {
    auto bytes = std::make_shared<std::string>(read_file(path));
    return parse_pb_value(*bytes, kind, bytes);
  });
}

struct DataSet {
  std::vector<PbValue> inputs, outputs;
};

DataSet read_data(const std::string& folder, const onnx::GraphView& graph) {
  DataSet data;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    std::string path = cat(folder, "/input_", i, ".pb");
    if (!file_exists(path)) break;
    data.inputs.push_back(load(path, kind_of(graph.inputs[i].type)));
    data.inputs.back().name = std::string(graph.inputs[i].name);
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    std::string path = cat(folder, "/output_", i, ".pb");
    if (!file_exists(path)) break;
    data.outputs.push_back(load(path, kind_of(graph.outputs[i].type)));
    data.outputs.back().name = std::string(graph.outputs[i].name);
  }
  return data;
}

using Fixed = std::set<std::pair<size_t, size_t>>;  // input and axis whose size stays a number

// Shapes for inputs that the model leaves open, or symbols dI.A for every dimension that is not fixed.
onnx::ImportOptions options_for(const onnx::GraphView& graph, const DataSet& data, bool symbolic,
                                const Fixed& fixed) {
  onnx::ImportOptions options;
  for (size_t i = 0; i < data.inputs.size(); ++i) {
    const PbValue& v = data.inputs[i];
    if (v.kind == PbValue::Kind::tensor) options.input_values[v.name] = v.tensor;
    if (v.kind != PbValue::Kind::tensor || (graph.inputs[i].type.has_shape && !symbolic)) continue;
    Shape shape = to_shape(v.tensor.dims());
    for (size_t d = 0; d < shape.size() && symbolic; ++d)
      if (!fixed.count({i, d})) shape[d] = Dim::symbol(cat("d", i, ".", d));
    options.input_shapes[v.name] = shape;
  }
  return options;
}

// Ops whose values no two runtimes share; only type and shape can be compared.
bool draws(const std::vector<onnx::NodeView>& nodes) {
  static constexpr std::string_view random[] = {"RandomNormal",      "RandomNormalLike", "RandomUniform",
                                                "RandomUniformLike", "Bernoulli",        "Multinomial"};
  for (const onnx::NodeView& n : nodes) {
    if (std::find(std::begin(random), std::end(random), n.op_type) != std::end(random)) return true;
    if (n.op_type == "Dropout" && n.inputs.size() > 2 && !n.inputs[2].empty()) return true;  // may train
    for (const onnx::AttributeView& a : n.attributes)
      for (const auto& g : a.graphs)
        if (draws(g->nodes)) return true;
  }
  return false;
}
// An op that needs a number for a size says so by the size's symbol: the last one it names becomes fixed.
bool fix_named_size(const Error& e, Fixed& fixed) {
  std::string_view text = e.what();
  for (size_t at = text.rfind('d'); at != text.npos && at > 0; at = text.rfind('d', at - 1)) {
    size_t input = 0, axis = 0;
    const char* end = text.data() + text.size();
    auto first = std::from_chars(text.data() + at + 1, end, input);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') continue;
    if (std::from_chars(first.ptr + 1, end, axis).ec == std::errc() && fixed.insert({input, axis}).second)
      return true;
  }
  return false;
}

bool draws(const onnx::ModelView& model) {
  if (draws(model.graph.nodes)) return true;
  return std::any_of(model.functions.begin(), model.functions.end(),
                     [](const auto& f) { return draws(f.nodes); });
}

ir::Graph round_trip(const ir::Graph& graph, onnx::ImportOptions options, const Case& one,
                     const CaseOptions& how) {
  auto bytes = std::make_shared<std::string>(onnx::export_model(graph));
  if (!how.export_folder.empty()) write_file(cat(how.export_folder, "/", one.name, ".onnx"), *bytes);
  options.input_shapes.clear();
  return std::move(onnx::import_bytes(*bytes, bytes, "", options).graph);
}

std::string run_data(const std::string& folder, const onnx::ModelView& view,
                     std::shared_ptr<std::string> bytes, const Case& one, const RunGraph& run,
                     const CaseOptions& how, const DataSet& data, const Fixed& fixed) {
  onnx::ImportOptions options = options_for(view.graph, data, how.symbolic, fixed);
  onnx::Imported model = onnx::import_bytes(*bytes, bytes, one.folder, options);
  if (how.round_trip) model.graph = round_trip(model.graph, options, one, how);
  std::vector<ir::HostValue> inputs;
  for (ir::ValueId id : model.graph.inputs) {
    const std::string& name = model.graph[id].name;
    auto it = std::find_if(data.inputs.begin(), data.inputs.end(),
                           [&](const PbValue& v) { return v.name == name; });
    if (it == data.inputs.end()) fail(ErrorCode::bad_format, cat("no data for input '", name, "'"), folder);
    ir::HostValue value = to_host(*it);
    const ir::Type& type = model.graph.type(id);
    if (type.kind == ir::TypeKind::optional && value.kind != ir::TypeKind::optional)
      value = ir::HostValue::optional({value});
    inputs.push_back(std::move(value));
  }
  auto results = run(model.graph, inputs);
  if (results.size() < data.outputs.size())
    return cat(results.size(), " results where ", data.outputs.size(), " are expected");
  bool random = draws(view);
  for (size_t i = 0; i < data.outputs.size(); ++i) {
    const Tensor &got = results[i].tensor, &want = data.outputs[i].tensor;
    if (random && got.defined() && want.defined() && got.dtype() == want.dtype() && got.dims() == want.dims())
      continue;
    if (std::string d = difference(results[i], data.outputs[i], one.tolerance); !d.empty())
      return cat("output '", data.outputs[i].name, "': ", d);
  }
  return {};
}

}  // namespace

std::vector<Case> find_cases(const std::vector<std::string>& folders) {
  std::vector<Case> out;
  for (const std::string& folder : folders) {
    size_t before = out.size();
    search(folder, 3, out);
    if (out.size() == before) fail(ErrorCode::not_found, "no model.onnx in or below the folder", folder);
  }
  std::sort(out.begin(), out.end(), [](const Case& a, const Case& b) {
    return std::tie(a.name, a.folder) < std::tie(b.name, b.folder);
  });
  return out;
}

std::string run_case(const Case& one, const RunGraph& run, const CaseOptions& options) {
  try {
    auto bytes = std::make_shared<std::string>(read_file(cat(one.folder, "/model.onnx")));
    onnx::ModelView view = onnx::parse_model(*bytes);
    int sets = 0;
    for (; folder_exists(cat(one.folder, "/test_data_set_", sets)); ++sets) {
      std::string folder = cat(one.folder, "/test_data_set_", sets);
      DataSet data = read_data(folder, view.graph);
      Fixed fixed;
      std::string reason;
      for (bool again = true; again;) try {
          again = false;
          reason = run_data(folder, view, bytes, one, run, options, data, fixed);
        } catch (const Error& e) {
          again = options.symbolic && fix_named_size(e, fixed);
          if (!again) throw;
        }
      if (!reason.empty()) return reason;
    }
    return sets ? "" : "the case has no data";
  } catch (const Error& e) {
    return e.what();
  } catch (const std::bad_alloc&) {
    return "not enough memory";
  }
}

}  // namespace pelton::cli
