// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "serve/core/model_plan.h"

namespace pelton::serve {
namespace {

bool ends_with(std::string_view s, std::string_view suffix) {
  return s.size() >= suffix.size() && s.substr(s.size() - suffix.size()) == suffix;
}

// Which backend a platform name of existing repositories means.
std::string backend_of_platform(const std::string& platform) {
  if (platform == "onnxruntime_onnx") return "onnxruntime";
  if (platform == "pytorch_libtorch") return "pytorch";
  if (platform == "tensorrt_plan") return "tensorrt";
  if (platform == "tensorflow_graphdef" || platform == "tensorflow_savedmodel") return "tensorflow";
  return platform;
}

// The backend that the files suggest, and the file.
std::pair<std::string, std::string> guess(const ModelDir& dir, int64_t version,
                                          const std::string& default_file) {
  std::vector<std::string> files =
      default_file.empty() ? dir.files(version ? cat(version) : "") : std::vector{default_file};
  for (const std::string& f : files) {
    if (ends_with(f, ".pelton")) return {"pelton", f};
    if (ends_with(f, ".onnx")) return {"onnxruntime", f};
    if (f == "model.py") return {"python", f};
    if (f == "model.plan") return {"tensorrt", f};
    if (f == "model.pt") return {"pytorch", f};
    if (f == "model.graphdef") return {"tensorflow", f};
    if (f == "model.xml") return {"openvino", f};
  }
  return {};
}

std::vector<int64_t> choose_versions(const VersionPolicy& policy, const std::vector<int64_t>& available) {
  switch (policy.kind) {
    case VersionPolicy::Kind::all:
      return available;
    case VersionPolicy::Kind::latest: {
      const size_t n = std::min<size_t>(policy.latest, available.size());
      return {available.end() - static_cast<std::ptrdiff_t>(n), available.end()};
    }
    case VersionPolicy::Kind::specific: {
      std::vector<int64_t> out;
      for (int64_t v : policy.specific) {
        if (std::find(available.begin(), available.end(), v) == available.end())
          fail(ErrorCode::not_found, cat("version_policy asks for version ", v, ", which has no folder"));
        out.push_back(v);
      }
      std::sort(out.begin(), out.end());
      return out;
    }
  }
  return {};
}

// A priority is that of threads of the CPU; the streams of a GPU have one only.
void check_priority(const ModelConfig& c) {
  const Priority wanted = c.optimization.priority;
  if (wanted == Priority::normal) return;
  for (const InstancePlace& place : c.places)
    if (place.gpu >= 0)
      fail(ErrorCode::unsupported_op,
           cat("field 'optimization.priority' is not supported on a GPU, and the model has an instance on "
               "GPU ",
               place.gpu),
           c.name, "remove the field, or place the model with kind: KIND_CPU");
  if (!may_have(wanted))
    fail(ErrorCode::unsupported_op,
         "field 'optimization.priority' asks for PRIORITY_MAX, which this process may not give to a thread",
         c.name,
         "allow it (CAP_SYS_NICE, or LimitNICE=-5 of systemd), or set the other models to PRIORITY_MIN");
}

}  // namespace

ModelPlan plan_model(const std::string& name, const ModelDir& dir,
                     const std::optional<std::string>& config_json, bool complete,
                     const BackendTable& backends,
                     const std::function<void(const Node&, const Backend&)>& before_use) {
  ModelPlan plan;
  std::unique_ptr<Node> tree;
  if (config_json)
    tree = parse_config_json(*config_json, name);
  else if (dir.exists("config.pbtxt"))
    tree = parse_config_text(dir.read("config.pbtxt", 16 << 20), cat(name, "/config.pbtxt"));
  else if (complete)
    tree = std::make_unique<Node>(model_config_type());
  else
    fail(ErrorCode::not_found, "the model has no config.pbtxt and completing configurations is off", name,
         "add one, or drop --disable-auto-complete-config");

  if (!tree->has("name")) tree->set("name", name);
  if (tree->string("name") != name)
    fail(ErrorCode::bad_name,
         cat("the configuration names the model '", tree->string("name"), "', its folder '", name, "'"), name,
         "make them equal");

  std::vector<int64_t> available = dir.versions();
  const bool is_ensemble = tree->has("ensemble_scheduling") || tree->string("platform") == "ensemble";
  if (available.empty()) {
    if (is_ensemble)
      available = {1};  // an ensemble has no files of its own
    else if (!guess(dir, 0, tree->string("default_model_filename")).first.empty() ||
             tree->string("backend") == "identity")
      available = {0};
    else
      fail(ErrorCode::not_found, "the model has no version folder and no model file", name,
           cat("put the model at ", name, "/1/model.onnx"));
  }
  if (is_ensemble) {
    tree->set("platform", std::string("ensemble"));
  } else {
    std::string backend = tree->string("backend");
    if (backend.empty()) backend = backend_of_platform(tree->string("platform"));
    if (backend.empty()) backend = guess(dir, available.back(), tree->string("default_model_filename")).first;
    if (backend.empty())
      fail(ErrorCode::not_found, "cannot tell which backend the model needs", name,
           "set 'backend' in config.pbtxt");
    tree->set("backend", backend);
    if (before_use) before_use(*tree, backends.get(backend));
    if (complete) {
      plan.prepared = backends.get(backend).complete(*tree, dir, available.back());
      plan.prepared_version = available.back();
    }
  }
  plan.config = read_model_config(std::shared_ptr<const Node>(std::move(tree)));
  const Backend* const backend = is_ensemble ? nullptr : &backends.get(plan.config.backend);
  check_engine_fields(plan.config,
                      [&](std::string_view field) { return backend && backend->honours(field); });
  if (backend)
    if (const auto gpus = backend->gpus()) place_instances(plan.config, *gpus);
  if (backend && plan.config.default_file.empty())
    plan.config.model_file = guess(dir, available.back(), "").second;
  check_priority(plan.config);
  if (plan.config.inputs.empty() && !is_ensemble)
    fail(ErrorCode::bad_format, "the configuration declares no input", name);
  if (plan.config.outputs.empty()) fail(ErrorCode::bad_format, "the configuration declares no output", name);
  plan.versions = choose_versions(plan.config.versions, available);
  if (plan.versions.empty()) fail(ErrorCode::not_found, "version_policy selects no version", name);
  return plan;
}

}  // namespace pelton::serve
