// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "serve/core/core.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& j) {
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json tensor_json(const ModelConfig& c, const TensorSpec& t) {
  return {{"name", t.name}, {"datatype", std::string(wire_name(t.dtype))}, {"shape", client_dims(c, t)}};
}

Json duration_json(uint64_t count, uint64_t ns) {
  return {{"count", count}, {"ns", ns}};
}
Json duration_json(const Duration& d) {
  return duration_json(d.count.load(), d.ns.load());
}

Json stats_json(const ModelStats& s) {
  Json j;
  j["name"] = s.model;
  j["version"] = s.version;
  j["last_inference"] = s.last_inference_ms.load();
  j["inference_count"] = s.inferences.load();
  j["execution_count"] = s.executions.load();
  j["inference_stats"] = {
      {"success", duration_json(s.success)},         {"fail", duration_json(s.fail)},
      {"queue", duration_json(s.stages[0])},         {"compute_input", duration_json(s.stages[1])},
      {"compute_infer", duration_json(s.stages[2])}, {"compute_output", duration_json(s.stages[3])},
      {"cache_hit", duration_json(s.cache_hit)},     {"cache_miss", duration_json(s.cache_miss)}};
  j["batch_stats"] = Json::array();
  for (const auto& [size, row] : s.batches())
    j["batch_stats"].push_back({{"batch_size", size},
                                {"compute_input", duration_json(row.count, row.input_ns)},
                                {"compute_infer", duration_json(row.count, row.infer_ns)},
                                {"compute_output", duration_json(row.count, row.output_ns)}});
  j["memory_usage"] = Json::array();
  j["response_stats"] = Json::object();
  for (const auto& [index, row] : s.response_rows())
    j["response_stats"][cat(index)] = {
        {"compute_infer", duration_json(row.success + row.fail, row.success_ns + row.fail_ns)},
        {"compute_output", duration_json(0, 0)},
        {"success", duration_json(row.success, row.success_ns)},
        {"fail", duration_json(row.fail, row.fail_ns)},
        {"empty_response", duration_json(0, 0)},
        {"cancel", duration_json(0, 0)}};
  // Exact, over the newest requests; beyond the published fields.
  const auto recent = s.recent.sorted_ns();
  if (!recent.empty())
    j["recent_latency_ns"] = {{"requests", recent.size()},        {"p50", quantile_ns(recent, 0.5)},
                              {"p90", quantile_ns(recent, 0.9)},  {"p95", quantile_ns(recent, 0.95)},
                              {"p99", quantile_ns(recent, 0.99)}, {"p99.9", quantile_ns(recent, 0.999)}};
  return j;
}

}  // namespace

std::vector<std::string> extensions(bool shared_memory, bool gpu_memory) {
  std::vector<std::string> names = {"classification",
                                    "sequence",
                                    "model_repository",
                                    "model_repository(unload_dependents)",
                                    "schedule_policy",
                                    "model_configuration",
                                    "binary_tensor_data",
                                    "parameters",
                                    "statistics",
                                    "trace",
                                    "logging"};
  if (shared_memory) names.push_back("system_shared_memory");
  if (gpu_memory) names.push_back("cuda_shared_memory");
  return names;
}

std::string Core::server_metadata_json() const {
  return dump(Json{{"name", options_.server_name},
                   {"version", options_.server_version},
                   {"extensions", extensions(shared_memory_.allowed(),
                                             shared_memory_.allowed() && shared_memory_.has_gpus())}});
}

std::string Core::model_metadata_json(std::string_view name, std::string_view version) const {
  const auto model = repository_->find(name, version);
  const ModelConfig& c = model->config();
  Json j;
  j["name"] = c.name;
  j["versions"] = version.empty() ? repository_->served_versions(name) : std::vector{model->version_text()};
  const std::string platform = platform_in_force(c);
  j["platform"] = platform.empty() ? c.backend : platform;
  j["inputs"] = Json::array();
  for (const TensorSpec& t : c.inputs) j["inputs"].push_back(tensor_json(c, t));
  j["outputs"] = Json::array();
  for (const TensorSpec& t : c.outputs) j["outputs"].push_back(tensor_json(c, t));
  return dump(j);
}

std::string Core::model_config_json(std::string_view name, std::string_view version) const {
  return config_to_json(*config_in_force(repository_->find(name, version)->config()));
}
std::string Core::model_config_wire(std::string_view name, std::string_view version) const {
  return config_to_wire(*config_in_force(repository_->find(name, version)->config()));
}

std::string Core::statistics_json(std::string_view name, std::string_view version) const {
  Json list = Json::array();
  auto add = [&](const std::string& model) {
    for (const std::string& v : repository_->served_versions(model)) {
      if (!version.empty() && v != version) continue;
      try {
        list.push_back(stats_json(repository_->find(model, v)->stats()));
      } catch (const Error&) {  // unloaded meanwhile
      }
    }
  };
  if (name.empty()) {
    for (const std::string& model : repository_->names()) add(model);
  } else {
    repository_->find(name, version);  // says what is wrong with the name
    add(std::string(name));
  }
  return dump(Json{{"model_stats", list}});
}

std::string Core::shared_memory_json(const std::string& region, bool of_gpus) const {
  Json list = Json::array();
  for (const auto& r : shared_memory_.list(region, of_gpus)) {
    if (of_gpus)
      list.push_back({{"name", r->name}, {"device_id", r->device}, {"byte_size", r->size}});
    else
      list.push_back({{"name", r->name}, {"key", r->key}, {"offset", r->offset}, {"byte_size", r->size}});
  }
  return dump(list);
}

std::string Core::index_json(bool ready_only) const {
  Json list = Json::array();
  for (const IndexEntry& e : repository_->index(ready_only)) {
    Json j{{"name", e.name}};
    if (!e.version.empty()) j["version"] = e.version;
    if (e.state) j["state"] = std::string(to_string(*e.state));
    if (!e.reason.empty()) j["reason"] = e.reason;
    list.push_back(std::move(j));
  }
  return dump(list);
}

std::string Core::log_settings_json(std::string_view changes) {
  std::lock_guard lock(log_mutex_);
  if (!changes.empty()) {
    const auto j = nlohmann::json::parse(changes, nullptr, false);  // not ordered: that takes n^2 steps
    if (!j.is_object()) fail(ErrorCode::bad_format, "log settings are not a JSON object");
    LogSwitches wanted = log_;
    for (const auto& [key, value] : j.items()) {
      bool* flag = key == "log_info"      ? &wanted.info
                   : key == "log_warning" ? &wanted.warning
                   : key == "log_error"   ? &wanted.error
                                          : nullptr;
      if (flag) {
        if (!value.is_boolean())
          fail(ErrorCode::bad_format, cat("log setting '", key, "' expects true or false"));
        *flag = value.get<bool>();
      } else if (key == "log_verbose_level") {
        if (!value.is_number_unsigned() || value.get<uint64_t>() > 1000)
          fail(ErrorCode::bad_format, "log setting 'log_verbose_level' expects an integer from 0 to 1000");
        wanted.verbose = value.get<unsigned>();
      } else if (key == "log_file") {
        fail(ErrorCode::usage, "log setting 'log_file' cannot be changed over the network", "",
             "start the server with --log-file");
      } else if (key == "log_format") {
        if (value != "default" && value != "ISO8601")
          fail(ErrorCode::bad_format, "log setting 'log_format' expects default or ISO8601");
        if (value != "ISO8601")
          fail(ErrorCode::usage, "log setting 'log_format' has one value here, ISO8601");
      } else {
        fail(ErrorCode::bad_format, cat("unknown log setting '", key, "'"));
      }
    }
    log_ = wanted;
    set_log_level(log_.level());
  }
  return dump(Json{{"log_file", options_.log_file},
                   {"log_info", log_.info},
                   {"log_warning", log_.warning},
                   {"log_error", log_.error},
                   {"log_verbose_level", log_.verbose},
                   {"log_format", "ISO8601"}});
}

std::string Core::trace_settings_json(std::string_view model, std::string_view changes) const {
  if (!model.empty()) repository_->find(model, "");
  return options_.repository.limits.tracer->settings_json(std::string(model), changes);
}

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::not_found:
      return 404;
    case ErrorCode::busy:
    case ErrorCode::deadline:
    case ErrorCode::out_of_memory:
      return 503;
    case ErrorCode::unsupported_op:
    case ErrorCode::unsupported_version:
      return 501;
    case ErrorCode::internal:
    case ErrorCode::device_lost:
    case ErrorCode::driver:
    case ErrorCode::io:
    case ErrorCode::disk_full:
    case ErrorCode::no_device:
    case ErrorCode::plugin:
      return 500;
    default:
      return 400;
  }
}

std::string error_json(const Error& e) {
  return cat("{\"error\":", json_string(e.what()), "}");
}

std::string json_string(std::string_view s) {
  return dump(Json(std::string(s)));
}

std::string html_escape(std::string_view s) {
  std::string out;
  for (char c : s) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace pelton::serve
