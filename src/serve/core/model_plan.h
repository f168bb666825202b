// SPDX-License-Identifier: Apache-2.0
// What is to be loaded of a model folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/core/engine.h"
#include "serve/core/model_config.h"

namespace pelton::serve {

// The configuration of a model folder: config.pbtxt or its override, the name checked, the backend found, the
// rest completed from the files. Returns the tree and the versions to load by its policy.
struct ModelPlan {
  ModelConfig config;
  std::shared_ptr<const void> prepared;  // what completing opened, for prepared_version
  int64_t prepared_version = -1;
  std::vector<int64_t> versions;  // 0: a bare model file, served as version 1
};
// `before_use` sees the configuration before the backend touches a file.
ModelPlan plan_model(const std::string& name, const ModelDir& dir,
                     const std::optional<std::string>& config_json, bool complete,
                     const BackendTable& backends,
                     const std::function<void(const Node&, const Backend&)>& before_use = {});

}  // namespace pelton::serve
