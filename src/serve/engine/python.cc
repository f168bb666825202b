// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/python.h"

#include <condition_variable>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "serve/engine/python_messages.h"
#include "serve/engine/python_sources.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::json;

constexpr auto kFinalizeTime = std::chrono::seconds(10);

// Everything about one version of a model that its processes need.
struct PythonModel {
  ModelConfig config;
  std::string folder, file, executable;
  int64_t version = 1;
  std::shared_ptr<ServerServices> services;
};

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

Json start_message(const char* task, const std::string& file, const std::string& folder, bool decoupled) {
  return {{"task", task},
          {"utils", std::string(python_utils_source())},
          {"file", file},
          {"folder", folder},
          {"decoupled", decoupled}};
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

[[noreturn]] void fail_from_model(const std::string& model, const Json& m) {
  log_error("model ", model, ": ", m.value("trace", ""));
  fail(ErrorCode::plugin, m.value("error", "the model failed"), model);
}

// Collects the responses of an inference that a model asked for and sends them to its process.
void infer_for_model(ServerServices& services, const std::shared_ptr<WorkerProcess>& process,
                     const Frame& frame) {
  const int64_t id = frame.head->at("id").get<int64_t>();
  auto responses = std::make_shared<std::vector<Response>>();
  auto answer = [process, id, responses](Response&& r, bool final) {
    if (r.error || !r.outputs.empty()) responses->push_back(std::move(r));
    if (!final) return;
    Json list = Json::array();
    std::vector<Blob> blobs;
    size_t offset = 0;
    for (const Response& one : *responses) list.push_back(response_json(one, blobs, offset));
    process->send({{"op", "answer"}, {"id", id}, {"responses", std::move(list)}}, blobs);
  };
  RequestPtr request;
  try {
    request = read_model_request(frame);
    const auto calls = services.calls();
    request->set_callback(answer);
    calls.infer(std::move(request));
  } catch (const std::exception& e) {
    if (request && !request->answered()) return;  // answers when it is destroyed
    Response r;
    r.error = Error(ErrorCode::bad_format, e.what());
    answer(std::move(r), true);
  }
}

void control_for_model(ServerServices& services, const std::shared_ptr<WorkerProcess>& process,
                       const Json& m) {
  Json out = {{"op", "answer"}, {"id", m.at("id")}};
  try {
    const auto calls = services.calls();
    const std::string action = m.at("action").get<std::string>(), model = m.at("model").get<std::string>();
    if (action == "load")
      calls.load(model, m.value("config", ""));
    else if (action == "unload")
      calls.unload(model, m.value("dependents", false));
    else
      out["value"] = calls.ready(model, m.value("version", ""));
  } catch (const std::exception& e) {
    out["error"] = e.what();
  }
  process->send(out);
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

class PythonInstance final : public Instance {
 public:
  PythonInstance(std::shared_ptr<const PythonModel> model, int index)
      : model_(std::move(model)), config_(model_->config), index_(index) {
    start();
  }
  ~PythonInstance() override { stop(); }

  void execute(BatchRun& run) override {
    auto process = running();
    if (!process) {
      if (reader_.joinable()) reader_.join();
      start();
      process = running();
      if (!process) fail(ErrorCode::internal, "the model's process ended as it started", config_.name);
    }
    const uint64_t batch = ++batches_;
    Json list = Json::array();
    std::vector<Blob> blobs;
    size_t offset = 0;
    for (RequestPtr& r : run.requests) list.push_back(request_json(*r, config_, ++keys_, blobs, offset));
    {
      std::lock_guard lock(mutex_);
      first_key_ = keys_ - run.requests.size() + 1;
      key_count_ = run.requests.size();
      if (!config_.decoupled) current_ = run.requests;
      for (size_t i = 0; config_.decoupled && i < run.requests.size(); ++i)
        pending_[first_key_ + i] = {std::move(run.requests[i]), run.responder};
    }
    const bool sent =
        process->send({{"op", "execute"}, {"id", 0}, {"batch", batch}, {"requests", std::move(list)}}, blobs);
    run.input_end = Clock::now();
    std::optional<Frame> done = sent ? wait_for(process, batch) : std::nullopt;
    {
      std::lock_guard lock(mutex_);
      current_ = {};
    }
    run.infer_end = Clock::now();
    if (!done) {
      const Error e(ErrorCode::internal, cat("the model's process ", dead(process), "; it is started again"),
                    config_.name);
      if (!config_.decoupled) throw e;
      if (reader_.joinable()) reader_.join();
      return fail_pending(e, 0, UINT64_MAX);
    }
    const Json& m = *done->head;
    if (m.contains("error")) {
      log_error("model ", config_.name, ": ", m.value("trace", ""));
      if (config_.decoupled) return;  // the reader has answered
      throw Error(ErrorCode::internal, m["error"].get<std::string>(), config_.name);
    }
    for (const Json& a : m.at("again")) run.again.push_back(a.get<bool>());
    if (config_.decoupled) return give_back(run);
    for (size_t i = 0; i < run.requests.size(); ++i) {
      const Json& r = m.at("responses").at(i);
      if (r.is_null())
        run.responses[i].error = Error(ErrorCode::internal, "the model returned no response", config_.name);
      else
        run.responses[i] = read_response(r, *done, config_);
    }
  }

 private:
  struct Pending {
    RequestPtr request;
    Responder* responder;
  };

  void start() {
    const std::string name = cat(config_.name, "_", index_);
    auto process = std::make_shared<WorkerProcess>(model_->executable, std::string(python_worker_source()));
    Json m = start_message("serve", model_->file, model_->folder, config_.decoupled);
    m["args"] = {{"model_config", config_to_json(*config_.tree)},
                 {"model_instance_kind", "CPU"},
                 {"model_instance_name", name},
                 {"model_instance_device_id", "0"},
                 {"model_repository", model_->folder},
                 {"model_version", cat(std::max<int64_t>(1, model_->version))},
                 {"model_name", config_.name}};
    process->send(m);
    for (;;) {
      Frame f;
      if (!process->receive(f))
        fail(ErrorCode::plugin, cat("the model's process ", process->end(), " while it started"),
             config_.name);
      const std::string op = f.head->value("op", "");
      if (op == "ready") break;
      if (op == "failed") fail_from_model(config_.name, *f.head);
      handle(process, f);
    }
    std::lock_guard lock(mutex_);
    process_ = process;
    if (config_.decoupled) reader_ = std::thread([this, process] { read(process); });
  }

  std::shared_ptr<WorkerProcess> running() {
    std::lock_guard lock(mutex_);
    return process_;
  }

  void stop() {
    const auto process = running();
    if (!process) {
      if (reader_.joinable()) reader_.join();
      return;
    }
    process->send({{"op", "finalize"}, {"id", 0}});
    const auto until = Clock::now() + kFinalizeTime;
    if (reader_.joinable()) {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_until(lock, until, [&] { return !process_; })) process->kill();
      lock.unlock();
      reader_.join();
    } else {
      try {
        for (Frame f; Clock::now() < until;)
          if (process->readable(50)) {
            if (!process->receive(f)) break;
            handle(process, f);
          }
      } catch (const std::exception& e) {
        log_warn("model ", config_.name, ": ", e.what());
      }
      process->kill();
    }
    process->end();
  }

  // Waits for the end of an execution; nullopt if the process ends before.
  std::optional<Frame> wait_for(const std::shared_ptr<WorkerProcess>& process, uint64_t batch) {
    if (config_.decoupled) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return executed_ || !process_; });
      std::optional<Frame> out;
      if (executed_) out.emplace(std::move(*executed_));
      executed_.reset();
      return out;
    }
    for (;;) {
      Frame f;
      if (!process->receive(f)) return std::nullopt;
      if (f.head->value("op", "") == "executed" && f.head->value("id", uint64_t{0}) == batch) return f;
      handle(process, f);
    }
  }

  // Decoupled models: everything the process says comes here.
  void read(const std::shared_ptr<WorkerProcess>& process) {
    std::string why;
    try {
      for (;;) {
        Frame f;
        if (!process->receive(f)) break;
        if (f.head->value("op", "") == "executed") {
          // Here and not in the caller: this thread alone may remove a request that a response could be for.
          if (f.head->contains("error"))
            fail_pending(Error(ErrorCode::internal, (*f.head)["error"].get<std::string>(), config_.name),
                         first_key_, key_count_);
          std::lock_guard lock(mutex_);
          executed_.emplace(std::move(f));
          changed_.notify_all();
        } else {
          handle(process, f);
        }
      }
    } catch (const std::exception& e) {
      why = cat(": ", e.what());
      process->kill();
    }
    const std::string how = process->end();
    fail_pending(Error(ErrorCode::internal, cat("the model's process ", how, why, "; it is started again"),
                       config_.name),
                 0, UINT64_MAX);
    std::lock_guard lock(mutex_);
    process_.reset();
    changed_.notify_all();
  }

  void handle(const std::shared_ptr<WorkerProcess>& process, const Frame& f) {
    const Json& m = *f.head;
    const std::string op = m.value("op", "");
    if (op == "log") return log_from_model(config_.name, m);
    if (op == "metric") return metric_from_model(*model_->services, config_.name, m);
    if (op == "infer") return infer_for_model(*model_->services, process, f);
    if (op == "control") return control_for_model(*model_->services, process, m);
    if (op == "cancelled") {
      process->send(
          {{"op", "answer"}, {"id", m.at("id")}, {"value", is_cancelled(m.at("key").get<uint64_t>())}});
      return;
    }
    if (op == "response") return respond(f);
    if (op != "finalized") log_warn("model ", config_.name, ": its process sends '", op, "'");
  }

  bool is_cancelled(uint64_t key) {
    std::lock_guard lock(mutex_);
    if (auto it = pending_.find(key); it != pending_.end()) return it->second.request->cancelled();
    const uint64_t i = key - first_key_;
    return i < current_.size() && current_[i] && current_[i]->cancelled();
  }

  // Iterative models: requests to run again go back to the scheduler.
  void give_back(BatchRun& run) {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < run.requests.size(); ++i) {
      if (i >= run.again.size() || !run.again[i]) continue;
      if (auto it = pending_.find(first_key_ + i); it != pending_.end()) {
        run.requests[i] = std::move(it->second.request);
        pending_.erase(it);
      }
    }
  }

  void respond(const Frame& f) {
    const Json& m = *f.head;
    const uint64_t key = m.at("key").get<uint64_t>();
    const bool final = m.at("final").get<bool>();
    std::optional<Response> response;
    if (!m.at("response").is_null()) response = read_response(m["response"], f, config_);
    // Only this thread removes requests while the process lives, so the request stays valid outside the lock.
    Pending pending{nullptr, nullptr};
    Request* request = nullptr;
    {
      std::lock_guard lock(mutex_);
      auto it = pending_.find(key);
      if (it == pending_.end()) return;
      pending.responder = it->second.responder;
      request = it->second.request.get();
      if (final) pending.request = std::move(it->second.request), pending_.erase(it);
    }
    if (final)
      pending.responder->finish(std::move(pending.request), std::move(response));
    else
      pending.responder->partial(*request, std::move(*response));
  }

  // Requests with keys in [first, first + count).
  void fail_pending(const Error& error, uint64_t first, uint64_t count) {
    std::vector<Pending> failed;
    {
      std::lock_guard lock(mutex_);
      for (auto it = pending_.begin(); it != pending_.end();) {
        if (it->first - first < count) {
          failed.push_back(std::move(it->second));
          it = pending_.erase(it);
        } else {
          ++it;
        }
      }
    }
    for (Pending& p : failed) {
      Response r;
      r.error = error;
      p.responder->finish(std::move(p.request), std::move(r));
    }
  }

  std::string dead(const std::shared_ptr<WorkerProcess>& process) {
    const std::string how = process->end();
    std::lock_guard lock(mutex_);
    process_.reset();
    return how;
  }

  const std::shared_ptr<const PythonModel> model_;
  const ModelConfig& config_;
  const int index_;
  uint64_t batches_ = 0, keys_ = 0;

  std::mutex mutex_;
  std::span<RequestPtr> current_;           // not decoupled: the batch under way
  uint64_t first_key_ = 0, key_count_ = 0;  // of the batch under way
  std::condition_variable changed_;
  std::shared_ptr<WorkerProcess> process_;  // null once it has ended
  std::map<uint64_t, Pending> pending_;     // decoupled: requests without their final response
  std::optional<Frame> executed_;
  std::thread reader_;
};

class PythonEngine final : public Engine {
 public:
  explicit PythonEngine(std::shared_ptr<const PythonModel> model) : model_(std::move(model)) {}
  std::unique_ptr<Instance> make_instance(int index) override {
    return std::make_unique<PythonInstance>(model_, index);
  }

 private:
  const std::shared_ptr<const PythonModel> model_;
};

class PythonBackend final : public Backend {
 public:
  explicit PythonBackend(PythonOptions o) : options_(std::move(o)) {}
  bool runs_code() const override { return true; }

  std::shared_ptr<const void> complete(Node& config, const ModelDir& dir, int64_t version) const override {
    const std::string file = model_file(config.string("default_model_filename"), version);
    if (dir.read(file, 64 << 20).find("auto_complete_config") == std::string::npos) return nullptr;
    const std::string python = python_of(read_config_map(config, "parameters"), dir, options_.executable);
    WorkerProcess process(python, std::string(python_worker_source()));
    Json m = start_message("complete", dir.checked_path(file), dir.path(), false);
    m["config"] = config_to_json(config);
    process.send(m);
    for (Frame f; process.receive(f);) {
      const std::string op = f.head->value("op", "");
      if (op == "log") log_from_model(config.string("name"), *f.head);
      if (op == "failed") fail_from_model(config.string("name"), *f.head);
      if (op != "completed") continue;
      auto completed = parse_config_json(f.head->at("config").get<std::string>(), "auto_complete_config");
      config = std::move(*completed);
      return nullptr;
    }
    fail(ErrorCode::plugin, cat("the process of auto_complete_config ", process.end()),
         config.string("name"));
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
