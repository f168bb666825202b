// SPDX-License-Identifier: Apache-2.0
#include "train/run_folder.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "train/checkpoint.h"
#include "train/loader.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace pelton::train {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

RunFolder::RunFolder(std::string path, bool resume) : path_(std::move(path)) {
  // One that ended before its first checkpoint may start again.
  bool holds_run = file_exists(path_ + "/run.json") && !list_checkpoints(checkpoints()).empty();
  if (holds_run && !resume)
    fail(ErrorCode::usage, "the folder holds a run already", path_,
         "go on with it: --resume; or choose another: --set output.folder=runs/other");
  if (!holds_run && resume)
    fail(ErrorCode::not_found, "there is no run to resume", path_, "leave --resume out");
  std::error_code ec;
  fs::create_directories(checkpoints(), ec);
  if (ec) fail_errno(ec.value(), "create", checkpoints());
}

void RunFolder::describe(const Recipe& r, const std::string& model,
                         const std::vector<std::string>& classes) const {
  write_file(path_ + "/recipe.toml", r.text);
  Json j = {{"format", 1},
            {"recipe", r.name},
            {"folder", fs::absolute(r.folder.empty() ? "." : r.folder).lexically_normal().string()},
            {"model", model},
            {"classes", classes}};
  std::string text;
  try {
    text = j.dump(2);
  } catch (const Json::exception&) {
    fail(ErrorCode::bad_name,
         "run.json holds the names of recipe, folder and classes, of which one is no UTF-8", path_,
         "rename it");
  }
  write_file(path_ + "/run.json", text + "\n");
}

bool is_run_folder(const std::string& path) {
  return folder_exists(path) && file_exists(path + "/run.json");
}

Recipe run_recipe(const std::string& path, const std::vector<std::string>& sets) {
  Json j = Json::parse(read_file(path + "/run.json"), nullptr, false);
  if (!j.is_object() || !j.contains("folder") || !j["folder"].is_string() || j.value("format", Json()) != 1 ||
      !j.contains("recipe") || !j["recipe"].is_string())
    fail(ErrorCode::bad_format, "run.json does not read", path);
  Recipe r = parse_recipe(read_file(path + "/recipe.toml"), j["recipe"].get<std::string>() + ".toml",
                          j["folder"].get<std::string>(), sets);
  r.output = path;
  return r;
}

namespace {

// With the weights in slots.
TrainedModel model_of_run(const std::string& path) {
  Recipe r = run_recipe(path);
  std::unique_ptr<Trainable> model =
      r.onnx.empty() ? named_model(r.model, r.model_options) : onnx_model(r.onnx, r.model_options);
  StepOptions o;
  // The plan takes what the model takes; normalisation of the recipe becomes part of it.
  if (!r.data.mean.empty())
    for (const nn::ModelInput& in : model->inputs()) {
      o.forms.emplace_back();
      if (in.dtype == DType::f32 && !in.sample.empty())
        o.forms.back() = InputForm{in.dtype, in.sample, r.data.mean, r.data.std, {}};
    }
  TrainedModel out{build_inference(*model, o), r.name};
  std::string folder = path + "/checkpoints", best = folder + "/best.safetensors";
  Checkpoint c = file_exists(best) ? read_checkpoint(best) : newest_checkpoint(folder);
  std::map<std::string, Tensor> weights;
  for (const auto& [name, t] : c.state) {
    if (name.starts_with("optimizer.") || name.starts_with("average.")) continue;
    auto average = c.state.find(cat("average.", name));
    weights[name] = average == c.state.end() ? t : average->second;
  }
  load_weights(out.graph, weights, {}, path);
  return out;
}

}  // namespace

TrainedModel trained_model(const std::string& path) {
  TrainedModel out = model_of_run(path);
  nn::freeze(out.graph);
  return out;
}

std::map<std::string, Tensor> trained_weights(const std::string& path) {
  std::map<std::string, Tensor> out;
  for (const ir::Slot& s : model_of_run(path).graph.slots) out[s.name] = s.initial;
  return out;
}

}  // namespace pelton::train
