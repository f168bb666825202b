// SPDX-License-Identifier: Apache-2.0
#include "cli/preprocess.h"

#include <filesystem>

#include "cli/run_model.h"
#include "data/lower.h"
#include "data/request.h"
#include "register/registry.h"
#include "runtime/plan_file.h"

namespace pelton::cli {
namespace {

using ir::Graph;
using ir::ValueId;

// An input that pictures may fit: f32, f16 or u8 of rank 4 with 1 or 3 channels, first or last.
bool takes_pictures(const Graph& g, ValueId v) {
  const ir::Type& t = g.type(v);
  if (!t.is_tensor() || !t.ranked || t.rank() != 4) return false;
  if (t.dtype != DType::f32 && t.dtype != DType::f16 && t.dtype != DType::u8) return false;
  auto channels = [](const Dim& d) { return !d.is_const() || d.value() == 1 || d.value() == 3; };
  return channels(t.shape[1]) || channels(t.shape[3]);
}

ValueId choose_input(const Graph& g, const std::string& wanted, const std::string& where) {
  std::string names, fitting;
  std::vector<ValueId> found;
  for (ValueId v : g.inputs) {
    if (g[v].name == wanted) return v;
    append(names, cat(names.empty() ? "" : ", ", g[v].name, " ", g.type(v).str()));
    if (takes_pictures(g, v)) found.push_back(v);
  }
  if (!wanted.empty())
    fail(ErrorCode::bad_name, cat("the model has no input '", wanted, "'"), where,
         cat("its inputs are ", names));
  if (found.size() == 1) return found[0];
  fail(ErrorCode::usage,
       cat(found.empty() ? "no input" : "more than one input", " of the model takes pictures: ", names),
       where,
       found.empty() ? "they go to f32, f16 or u8 of rank 4 with 1 or 3 channels"
                     : "name it: --preprocess INPUT=PIPELINE.toml");
}

// The pipeline's result must be what the input takes, but for sizes that the input leaves open.
void check_fits(const ir::Type& made, const ir::Type& input, const std::string& name,
                const std::string& where) {
  bool fits = input.is_tensor() && input.ranked && made.dtype == input.dtype &&
              made.shape.size() == input.shape.size();
  for (size_t d = 1; fits && d < made.shape.size(); ++d)
    fits = !input.shape[d].is_const() || made.shape[d] == input.shape[d];
  if (fits) return;
  fail(ErrorCode::bad_shape,
       cat("the pipeline makes ", made.str(), ", input '", name, "' takes ", input.str()), where,
       "end it with a resize or crop to that size, and normalize with the dtype and layout of the input");
}

}  // namespace

std::shared_ptr<const runtime::Preprocess> compile_preprocess(const Graph& model, const std::string& argument,
                                                              const device::Target& target,
                                                              const CompileOptions& options) {
  const size_t equals = argument.find('=');
  const std::string wanted = equals == argument.npos ? "" : argument.substr(0, equals),
                    path = equals == argument.npos ? argument : argument.substr(equals + 1);
  const data::PipelineSpec spec = data::request_form(data::load_pipeline(path));
  const ValueId input = choose_input(model, wanted, path);
  auto out = std::make_shared<runtime::Preprocess>();
  out->name = std::filesystem::path(path).filename().string();
  out->input = model[input].name;
  out->pipeline = data::pipeline_text(spec);
  Model part;
  part.graph = data::lower_pipeline(spec, out->input);
  part.name = out->name;
  check_fits(part.graph.type(part.graph.outputs[0]), model.type(input), out->input, path);
  CompileOptions own = options;  // shapes name inputs of the model; pixels are not made less exact
  own.shapes.clear();
  own.precision = "fp32";
  // Pictures are prepared on the host, whatever the model runs on.
  out->plan = std::make_shared<runtime::Plan>(compile_model(std::move(part), host_of(target), own));
  return out;
}

std::shared_ptr<const runtime::Preprocess> find_preprocess(const std::string& path) {
  return is_plan_file(path) ? runtime::load_preprocess(path) : nullptr;
}

std::shared_ptr<const runtime::PictureInput> open_pictures(const std::string& path,
                                                           const device::Target& target) {
  auto preprocess = find_preprocess(path);
  if (!preprocess) return nullptr;
  return std::make_shared<runtime::PictureInput>(std::move(preprocess), registry(), host_of(target),
                                                 data::make_picture_reader);
}

}  // namespace pelton::cli
