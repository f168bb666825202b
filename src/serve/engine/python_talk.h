// SPDX-License-Identifier: Apache-2.0
// What a model's process is told first, and what it says beside answers: logs, prints, metrics, model
// control.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "serve/core/services.h"
#include "serve/engine/worker_process.h"

namespace pelton::serve {

// What to do ("serve", "complete") and with which file.
nlohmann::json python_start_message(const char* task, const std::string& file, const std::string& folder,
                                    bool decoupled);
void log_from_model(const std::string& model, const nlohmann::json& message);
[[noreturn]] void fail_from_model(const std::string& model, const nlohmann::json& message);
WorkerProcess::Printed log_prints_of(const std::string& model);
void metric_from_model(ServerServices& services, const std::string& model, const nlohmann::json& message);
// Loads and unloads on a thread that may wait; `process` gets the answer.
void control_for_model(const std::shared_ptr<ServerServices>& services,
                       const std::shared_ptr<WorkerProcess>& process, nlohmann::json message);

}  // namespace pelton::serve
