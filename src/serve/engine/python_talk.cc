// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/python_talk.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "serve/engine/python_sources.h"

namespace pelton::serve {

using Json = nlohmann::json;

Json python_start_message(const char* task, const std::string& file, const std::string& folder,
                          bool decoupled) {
  Json types = Json::array();
  for (int i = 0; i < kDTypeCount; ++i) types.push_back(std::string(wire_name(static_cast<DType>(i))));
  return {{"task", task},   {"utils", std::string(python_utils_source())},
          {"file", file},   {"folder", folder},
          {"types", types}, {"decoupled", decoupled}};
}

void log_from_model(const std::string& model, const Json& m) {
  const std::string level = m.value("level", "info"), text = m.value("text", "");
  if (level == "error")
    log_error(model, ": ", text);
  else if (level == "warn")
    log_warn(model, ": ", text);
  else if (level == "debug")
    log_debug(model, ": ", text);
  else
    log_info(model, ": ", text);
}

void fail_from_model(const std::string& model, const Json& m) {
  log_error("model ", model, ": ", m.value("trace", ""));
  fail(ErrorCode::plugin, m.value("error", "the model failed"), model);
}

WorkerProcess::Printed log_prints_of(const std::string& model) {
  // A print is no warning, and who prints wants to see it whatever is logged else.
  return [model](std::string_view line) { log_always(LogLevel::info, cat(model, ": ", line)); };
}

void control_for_model(const std::shared_ptr<ServerServices>& services,
                       const std::shared_ptr<WorkerProcess>& process, Json m) {
  Json out = {{"op", "answer"}, {"id", m.at("id")}};
  auto answer = [services, process](const Json& message, Json reply) {
    try {
      const auto calls = services->calls();
      const std::string action = message.at("action").get<std::string>();
      const std::string model = message.at("model").get<std::string>();
      if (action == "load")
        calls.load(model, message.value("config", ""));
      else if (action == "unload")
        calls.unload(model, message.value("dependents", false));
      else
        reply["value"] = calls.ready(model, message.value("version", ""));
    } catch (const std::exception& e) {
      reply["error"] = e.what();
    }
    process->send(reply);
  };
  if (m.value("action", "") == "ready") return answer(m, std::move(out));
  try {
    services->calls().post([answer, m, out] { answer(m, out); });
  } catch (const std::exception& e) {
    out["error"] = e.what();
    process->send(out);
  }
}

void metric_from_model(ServerServices& services, const std::string& model, const Json& m) {
  try {
    MetricChange c;
    c.family = m.at("family").get<std::string>();
    c.help = m.at("help").get<std::string>();
    c.kind = m.at("kind").get<std::string>();
    c.labels = m.at("labels").get<std::map<std::string, std::string>>();
    c.buckets = m.at("buckets").get<std::vector<double>>();
    const std::string action = m.at("action").get<std::string>();
    c.action = action == "set"       ? MetricChange::Action::set
               : action == "observe" ? MetricChange::Action::observe
                                     : MetricChange::Action::add;
    c.value = m.at("value").get<double>();
    services.metrics.apply(c);
  } catch (const std::exception& e) {
    log_warn("model ", model, ": ", e.what());
  }
}

}  // namespace pelton::serve
