// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/python.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/engine/python_instance.h"
#include "serve/engine/python_sources.h"
#include "serve/engine/python_talk.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::json;

std::string model_file(const std::string& configured, int64_t version) {
  return version_path(version, configured.empty() ? "model.py" : configured);
}

std::string python_of(const std::map<std::string, std::string>& parameters, const ModelDir& dir,
                      const std::string& standard) {
  const auto p = parameters.find("EXECUTION_ENV_PATH");
  if (p == parameters.end()) return standard;
  std::string path = p->second;
  if (path.ends_with(".tar.gz"))
    fail(ErrorCode::unsupported_op, cat("parameter EXECUTION_ENV_PATH names the archive '", path, "'"), "",
         "unpack it and name the folder");
  constexpr std::string_view kFolder = "$$TRITON_MODEL_DIRECTORY/";
  if (path.starts_with(kFolder)) path = dir.checked_path(path.substr(kFolder.size()));
  return path.ends_with("/python") || path.ends_with("/python3") ? path : path + "/bin/python3";
}

class PythonEngine final : public Engine {
 public:
  explicit PythonEngine(std::shared_ptr<const PythonModel> model) : model_(std::move(model)) {}
  std::unique_ptr<Instance> make_instance(int index) override {
    return std::make_unique<PythonInstance>(model_, this, index);
  }
  bool asks() const override { return true; }

 private:
  const std::shared_ptr<const PythonModel> model_;
};

class PythonBackend final : public Backend {
 public:
  explicit PythonBackend(PythonOptions o) : options_(std::move(o)) {}
  bool runs_code() const override { return true; }
  std::optional<std::vector<int>> gpus() const override { return std::nullopt; }

  std::shared_ptr<const void> complete(Node& config, const ModelDir& dir, int64_t version) const override {
    const std::string file = model_file(config.string("default_model_filename"), version);
    if (dir.read(file, 64 << 20).find("auto_complete_config") == std::string::npos) return nullptr;
    const std::string python = python_of(read_config_map(config, "parameters"), dir, options_.executable);
    const std::string name = config.string("name");
    WorkerProcess process(python, std::string(python_worker_source()), options_.services->answers,
                          log_prints_of(name));
    Json m = python_start_message("complete", dir.checked_path(file), dir.path(), false);
    m["config"] = config_to_json(config);
    process.send(m);
    for (Frame f; process.receive(f);) {
      const Json head = f.json();
      const std::string op = head.value("op", "");
      if (op == "log") log_from_model(name, head);
      if (op == "failed") fail_from_model(name, head);
      if (op != "completed") continue;
      auto completed = parse_config_json(head.at("config").get<std::string>(), "auto_complete_config");
      config = std::move(*completed);
      return nullptr;
    }
    fail(ErrorCode::plugin, cat("the process of auto_complete_config ", process.end()), name);
  }

  std::shared_ptr<Engine> load(const ModelConfig& config, const ModelDir& dir, int64_t version,
                               std::shared_ptr<const void>) const override {
    auto model = std::make_shared<PythonModel>();
    model->config = config;
    model->folder = dir.path();
    model->file = dir.checked_path(model_file(config.default_file, version));
    model->executable = python_of(config.parameters, dir, options_.executable);
    model->version = version;
    model->services = options_.services;
    return std::make_shared<PythonEngine>(std::move(model));
  }

 private:
  const PythonOptions options_;
};

}  // namespace

std::shared_ptr<const Backend> make_python_backend(PythonOptions options) {
  return std::make_shared<PythonBackend>(std::move(options));
}

}  // namespace pelton::serve
