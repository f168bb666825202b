// SPDX-License-Identifier: Apache-2.0
#include "serve/core/core.h"

#include <algorithm>

#include "base/error.h"

namespace pelton::serve {

namespace {

CoreOptions with_services(CoreOptions o) {
  if (o.cache_bytes) o.repository.limits.cache = std::make_shared<ResponseCache>(o.cache_bytes);
  if (o.rate_limits) o.repository.limits.limiter = std::make_shared<RateLimiter>(o.rate_resources);
  o.repository.limits.tracer = std::make_shared<Tracer>(o.trace, o.span_sink);
  return o;
}

}  // namespace

LogLevel LogSwitches::level() const {
  if (verbose > 0) return LogLevel::debug;
  if (info) return LogLevel::info;
  if (warning) return LogLevel::warn;
  return error ? LogLevel::error : LogLevel::off;
}

Core::Core(CoreOptions options, const BackendTable& backends)
    : options_(with_services(std::move(options))),
      stats_(!options_.metrics.quantiles.empty()),
      machine_metrics_(options_.metrics),
      gate_(options_.inflight_bytes),
      answers_(options_.inflight_bytes),
      shared_memory_(options_.allow_client_shm, gate_, options_.open_gpu_region),
      admin_(4, 1024),
      model_calls_(256),
      repository_(std::make_unique<Repository>(options_.repository, backends, stats_)),
      log_(options_.log) {}

Core::~Core() {
  stop();
}

std::map<std::string, std::string> Core::start() {
  if (options_.services) {
    ServerServices::Calls calls;
    calls.infer = [this](RequestPtr r) { infer(std::move(r)); };
    calls.load = [this](const std::string& model, const std::string& config) {
      if (draining()) fail(ErrorCode::busy, "the server is stopping: no model is loaded any more", model);
      LoadOverride changes;
      if (!config.empty()) changes.config_json = config;
      repository_->load(model, changes);
    };
    calls.unload = [this](const std::string& model, bool dependents) {
      repository_->unload(model, dependents);
    };
    calls.ready = [this](const std::string& model, const std::string& version) {
      return repository_->ready(model, version);
    };
    calls.post = [this](std::function<void()> task) { model_calls_.post(std::move(task)); };
    options_.services->open(std::move(calls));
  }
  auto errors = repository_->start();
  loaded_ = true;
  return errors;
}

void Core::stop() {
  set_draining();
  admin_.finish();
  model_calls_.finish();
  repository_->stop();
  if (options_.services) options_.services->close();
  options_.repository.limits.tracer->flush();
}

std::string Core::metrics() const {
  std::string out = metrics_text(stats_, options_.metrics);
  out += machine_metrics_.text();
  if (options_.services) out += options_.services->metrics.text();
  return out;
}

bool Core::ready() const {
  return loaded_ && !draining() && (!options_.strict_readiness || repository_->all_ready());
}

void Core::infer(RequestPtr request) const {
  std::shared_ptr<const Model> model;
  try {
    // What a model asks for on behalf of a request under way is still answered.
    if (draining() && !request->wait)
      fail(ErrorCode::busy, "the server is stopping", request->model, "retry elsewhere");
    read_reserved_parameters(*request);
    model = repository_->find(request->model, request->version);
    if (model->config().decoupled && !request->streams)
      fail(ErrorCode::unsupported_op,
           cat("model '", request->model, "' is decoupled: one request may have any number of responses"), "",
           "use ModelStreamInfer or generate_stream");
  } catch (const Error& e) {
    return request->respond(e);
  }
  model->infer(std::move(request));
}

void Core::count_refused(const Request& r, ErrorCode code) const {
  try {
    repository_->find(r.model, r.version)
        ->stats()
        .record_failure(fail_reason(code), ns_between(r.arrival, Clock::now()));
  } catch (const Error&) {  // no such model, so no series
  }
}

bool is_reserved_parameter(std::string_view name) {
  static constexpr std::string_view kNames[] = {"sequence_id", "sequence_start",   "sequence_end",
                                                "priority",    "timeout",          "headers",
                                                "binary_data", "binary_data_size", "binary_data_output"};
  return name.starts_with("triton_") ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

void read_reserved_parameters(Request& r) {
  auto& p = r.parameters;
  if (p.empty()) return;
  auto take = [&](const char* name) -> std::optional<Parameter> {
    auto it = p.find(name);
    if (it == p.end()) return std::nullopt;
    Parameter v = std::move(it->second);
    p.erase(it);
    return v;
  };
  auto number = [&](const char* name) -> uint64_t {
    auto v = take(name);
    if (!v) return 0;
    if (const auto* u = std::get_if<uint64_t>(&*v)) return *u;
    if (const auto* i = std::get_if<int64_t>(&*v); i && *i >= 0) return static_cast<uint64_t>(*i);
    fail(ErrorCode::bad_format, cat("parameter '", name, "' expects a non-negative integer"));
  };
  auto flag = [&](const char* name) {
    auto v = take(name);
    if (!v) return false;
    if (const auto* b = std::get_if<bool>(&*v)) return *b;
    fail(ErrorCode::bad_format, cat("parameter '", name, "' expects true or false"));
  };
  if (auto it = p.find("sequence_id"); it != p.end() && std::holds_alternative<std::string>(it->second)) {
    r.sequence.text = std::get<std::string>(it->second);
    if (r.sequence.text.size() > 128)
      fail(ErrorCode::limit, "parameter 'sequence_id' is longer than 128 characters");
    p.erase(it);
  } else {
    r.sequence.number = number("sequence_id");
  }
  r.sequence_start = flag("sequence_start");
  r.sequence_end = flag("sequence_end");
  r.priority = number("priority");
  r.timeout_us = number("timeout");
  p.erase("binary_data_output");
  for (auto it = p.begin(); it != p.end();) {
    if (it->first.starts_with("triton_") && it->first != "triton_enable_empty_final_response")
      fail(ErrorCode::bad_format, cat("parameter '", it->first, "' is reserved"));
    ++it;
  }
}

}  // namespace pelton::serve
