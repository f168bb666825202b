// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/python_instance.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <semaphore>

#include "base/error.h"
#include "base/json_number.h"
#include "base/log.h"
#include "serve/core/batch_runner.h"
#include "serve/engine/python_frames.h"
#include "serve/engine/python_messages.h"
#include "serve/engine/python_sources.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::json;

constexpr auto kFinalizeTime = std::chrono::seconds(10);
// As much work as may wait in a process: little enough that another instance would hardly have been quicker.
constexpr int64_t kPipelineNs = 500'000;
constexpr int64_t kMaxDepth = 32;

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

// What is being handled, about an answer that cannot be read: the model's fault and not its client's.
Error wrong_answer(const std::string& model) {
  const Error e = error_from_current_exception(model);
  if (e.code() == ErrorCode::busy || e.code() == ErrorCode::out_of_memory) return e;
  return Error(ErrorCode::plugin, e.message(), model, e.fix());
}

// Instances count within their group.
std::string instance_name(const ModelConfig& config, int index) {
  const std::string& group = config.places[static_cast<size_t>(index)].group;
  if (group.empty()) return cat(config.name, "_", index);
  const auto end = config.places.begin() + index;
  return cat(group, "_", std::count_if(config.places.begin(), end, [&](const InstancePlace& p) {
               return p.group == group;
             }));
}

}  // namespace

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
  return [model](std::string_view line) { log_warn(model, ": ", line); };
}

PythonInstance::PythonInstance(std::shared_ptr<const PythonModel> model, const void* engine, int index)
    : model_(std::move(model)),
      config_(model_->config),
      index_(index),
      site_(model_->services->graph->site(engine)),
      asking_(std::make_shared<std::atomic<int>>(0)),
      pipelines_(!config_.decoupled && !config_.sequence) {
  ensure_process();
}

PythonInstance::~PythonInstance() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.wait(lock, [&] { return !replacing_; });
  if (auto process = process_) {
    lock.unlock();
    process->send(Json{{"op", "finalize"}, {"id", 0}});
    lock.lock();
    if (!changed_.wait_for(lock, kFinalizeTime, [&] { return !process_; })) process->kill();
  }
  lock.unlock();
  if (reader_.joinable()) reader_.join();
  if (sender_.joinable()) sender_.join();
}

std::shared_ptr<WorkerProcess> PythonInstance::start() {
  auto process = std::make_shared<WorkerProcess>(model_->executable, std::string(python_worker_source()),
                                                 model_->services->answers, log_prints_of(config_.name));
  set_priority(config_.optimization.priority, process->pid());
  Json m = python_start_message("serve", model_->file, model_->folder, config_.decoupled);
  m["outputs"] = Json::array();
  for (const TensorSpec& t : config_.outputs) m["outputs"].push_back(t.name);
  const InstancePlace& place = config_.places[static_cast<size_t>(index_)];
  const bool gpu = place.kind == InstancePlace::Kind::gpu;
  m["args"] = {{"model_config", config_to_json(*config_.tree)},
               {"model_instance_kind", gpu ? "GPU" : "CPU"},
               {"model_instance_name", instance_name(config_, index_)},
               {"model_instance_device_id", cat(std::max(0, place.gpu))},
               {"model_repository", model_->folder},
               {"model_version", cat(std::max<int64_t>(1, model_->version))},
               {"model_name", config_.name}};
  process->send(m);
  for (;;) {
    Frame f;
    if (!process->receive(f))
      fail(ErrorCode::plugin, cat("the model's process ", process->end(), " while it started"), config_.name);
    const Json head = f.json();
    const std::string op = head.value("op", "");
    if (op == "ready") return process;
    if (op == "failed") fail_from_model(config_.name, head);
    handle(process, f);
  }
}

// In the thread that begins executions.
void PythonInstance::ensure_process() {
  {
    std::lock_guard lock(mutex_);
    if (process_ || replacing_) return;
  }
  if (reader_.joinable()) reader_.join();
  auto process = start();
  std::lock_guard lock(mutex_);
  process_ = process;
  reader_ = std::thread([this, process] { read(process); });
}

int PythonInstance::depth() {
  const int64_t slowest = slowest_ns_.load(std::memory_order_relaxed);
  if (!pipelines_ || slowest == 0 || asking_->load(std::memory_order_relaxed)) return 1;
  return static_cast<int>(std::clamp<int64_t>(kPipelineNs / slowest, 1, config_.batching ? 2 : kMaxDepth));
}

void PythonInstance::execute(BatchRun& run) {
  auto done = std::make_shared<std::binary_semaphore>(0);
  begin(run, [done] { done->release(); });
  done->acquire();
}

void PythonInstance::begin(BatchRun& run, std::function<void()> done) {
  const uint64_t batch = ++batches_;
  Flight flight{&run, std::move(done), keys_ + 1};
  keys_ += run.requests.size();
  for (const RequestPtr& r : run.requests)
    if (r->wait) r->wait->running(site_);
  std::vector<Blob> blobs;
  const std::string head = execute_head(batch, run.requests, config_, flight.first_key, blobs);
  std::shared_ptr<WorkerProcess> process;
  // Made before anything is handed over: from then on nothing may throw, the reader answers.
  const uint64_t first = flight.first_key;
  std::map<uint64_t, Pending> pending;
  for (size_t i = 0; config_.decoupled && i < run.requests.size(); ++i)
    pending.emplace(first + i, Pending{nullptr, run.responder});
  std::map<uint64_t, Flight> flights;
  flights.emplace(batch, std::move(flight));
  for (bool registered = false; !registered;) {
    ensure_process();
    std::lock_guard lock(mutex_);
    if (!process_ && !replacing_) continue;  // it has ended since, and its reader with it
    registered = true;
    if (flights_.empty()) site_->hold(true);
    process = process_;
    for (auto& [key, p] : pending) p.request = std::move(run.requests[key - first]);
    pending_.merge(pending);
    flights_.merge(flights);
  }
  // Without one, or with one that ends now, the reader sends what has not begun to the next.
  try {
    if (process) process->send(Frame::Kind::execute, head, blobs);
  } catch (...) {  // no memory: the frame may have left in part
    process->kill();
  }
}

// The thread of the reader: hears out the process, and those that take its place while there is work for
// them.
void PythonInstance::read(std::shared_ptr<WorkerProcess> process) {
  while (process) {
    std::string why;
    if (!listen(process, why)) process->kill();
    process = replace(process, why);
  }
}

// Until the process ends; false with a reason if it had to be given up.
bool PythonInstance::listen(const std::shared_ptr<WorkerProcess>& process, std::string& why) {
  try {
    for (Frame f; process->receive(f);)
      if (f.kind == Frame::Kind::executed)
        executed(f);
      else
        handle(process, f);
    return true;
  } catch (const std::exception& e) {
    why = cat(": ", e.what());
    return false;
  }
}

// Answers what the ended process had begun and starts another one if more is left.
std::shared_ptr<WorkerProcess> PythonInstance::replace(const std::shared_ptr<WorkerProcess>& ended,
                                                       const std::string& why) {
  if (sender_.joinable()) sender_.join();
  const Error lost(ErrorCode::internal,
                   cat("the model's process ", ended->end(), why, "; it is started again"), config_.name);
  const uint64_t begun = ended->begun();
  std::vector<Flight> failed;
  bool more = false;
  {
    std::lock_guard lock(mutex_);
    for (auto it = flights_.begin(); it != flights_.end();) {
      if (config_.decoupled || stopping_ || it->first <= begun) {
        failed.push_back(std::move(it->second));
        it = flights_.erase(it);
      } else {
        ++it;
      }
    }
    if (flights_.empty()) site_->hold(false);
    more = replacing_ = !flights_.empty();
    process_.reset();
    changed_.notify_all();
  }
  fail_pending(lost, 0, UINT64_MAX);
  for (Flight& f : failed) {
    f.run->fail(lost);
    f.done();
  }
  if (!more) return nullptr;
  std::shared_ptr<WorkerProcess> next;
  std::optional<Error> error;
  try {
    next = start();
  } catch (const Error& e) {
    error = e;
  } catch (const std::exception& e) {
    error = Error(ErrorCode::internal, e.what(), config_.name);
  }
  if (next) {
    // Apart from the reader: a process may want to be heard before it listens.
    sender_ = std::thread([this, next] { send_left(next); });
    return next;
  }
  std::map<uint64_t, Flight> left;
  {
    std::lock_guard lock(mutex_);
    replacing_ = false;
    left.swap(flights_);
    site_->hold(false);
    changed_.notify_all();
  }
  for (auto& [unused, flight] : left) {
    flight.run->fail(*error);
    flight.done();
  }
  return nullptr;
}

// Sends the executions that wait for the new process, in order, and opens it for further ones.
void PythonInstance::send_left(const std::shared_ptr<WorkerProcess>& process) {
  for (uint64_t last = 0;;) {
    std::vector<Blob> blobs;
    std::string head;
    std::optional<Flight> failed;
    std::optional<Error> error;
    {
      std::lock_guard lock(mutex_);
      const auto it = flights_.upper_bound(last);
      if (it == flights_.end()) {
        replacing_ = false;
        process_ = process;
        changed_.notify_all();
        return;
      }
      last = it->first;
      try {
        head = execute_head(last, it->second.run->requests, config_, it->second.first_key, blobs);
      } catch (...) {
        error = error_from_current_exception(config_.name);
        failed = std::move(it->second);
        flights_.erase(it);
        if (flights_.empty()) site_->hold(false);
      }
    }
    if (failed) {
      failed->run->fail(*error);
      failed->done();
      continue;
    }
    try {
      process->send(Frame::Kind::execute, head, blobs);
    } catch (...) {  // the frame may have left in part
      process->kill();
    }
  }
}

void PythonInstance::executed(const Frame& frame) {
  const uint64_t batch = executed_batch(frame);
  std::optional<Flight> flight;
  {
    std::lock_guard lock(mutex_);
    auto it = flights_.find(batch);
    if (it == flights_.end()) return;
    flight = std::move(it->second);
    flights_.erase(it);
    flight->run->start = std::max(flight->run->start, last_end_);
    if (flights_.empty()) site_->hold(false);
  }
  BatchRun& run = *flight->run;
  try {
    read_executed(frame, config_, run);
  } catch (...) {  // the execution ends all the same
    run.fail(wrong_answer(config_.name));
  }
  const int64_t took = static_cast<int64_t>((run.infer_end - run.input_end).count());
  slowest_ns_.store(std::max({took, int64_t{1}, slowest_ns_.load(std::memory_order_relaxed) * 15 / 16}),
                    std::memory_order_relaxed);
  last_end_ = run.infer_end;
  give_back(*flight);
  flight->done();
}

// The execution as a whole went wrong.
void PythonInstance::failed(const Json& m) {
  const auto batch = json_unsigned(m.at("batch"));
  const std::string trace = m.value("trace", ""), what = m.value("error", "the model failed");
  std::optional<Flight> flight;
  {
    std::lock_guard lock(mutex_);
    auto it = flights_.find(batch);
    if (it == flights_.end()) return;
    flight = std::move(it->second);
    flights_.erase(it);
    if (flights_.empty()) site_->hold(false);
  }
  log_error("model ", config_.name, ": ", trace);
  const Error error(ErrorCode::internal, what, config_.name);
  // Here and not in the caller: this thread alone may remove a request that a response could be for.
  fail_pending(error, flight->first_key, flight->run->requests.size());
  flight->run->fail(error);
  flight->done();
}

void PythonInstance::handle(const std::shared_ptr<WorkerProcess>& process, const Frame& f) {
  const Json m = f.json();
  const std::string op = m.value("op", "");
  if (op == "log") return log_from_model(config_.name, m);
  if (op == "metric") return metric_from_model(*model_->services, config_.name, m);
  if (op == "infer") return infer_for_model(process, m, f);
  if (op == "control") return control_for_model(model_->services, process, m);
  if (op == "failed") return failed(m);
  if (op == "cancelled") {
    process->send(
        Json{{"op", "answer"}, {"id", m.at("id")}, {"value", is_cancelled(json_unsigned(m.at("key")))}});
    return;
  }
  if (op == "response") return respond(m, f);
  if (op != "finalized") log_warn("model ", config_.name, ": its process sends '", op, "'");
}

// Collects the responses of an inference that the model asks for and sends them to its process.
void PythonInstance::infer_for_model(const std::shared_ptr<WorkerProcess>& process, const Json& m,
                                     const Frame& frame) {
  const int64_t id = json_integer(m.at("id"));
  auto responses = std::make_shared<std::vector<Response>>();
  ++*asking_;
  // The answer may come when this instance is no more: then only the process is told, which has ended.
  auto answer = [process, id, responses, asking = asking_](Response&& r, bool final) {
    if (r.error || !r.outputs.empty()) responses->push_back(std::move(r));
    if (!final) return;
    --*asking;
    Json list = Json::array();
    std::vector<Blob> blobs;
    size_t offset = 0;
    for (const Response& one : *responses) list.push_back(response_json(one, blobs, offset));
    process->send(Json{{"op", "answer"}, {"id", id}, {"responses", std::move(list)}}, blobs);
  };
  RequestPtr request;
  try {
    request = read_model_request(m, frame);
    request->wait = site_->wait();
    const auto calls = model_->services->calls();
    request->set_callback(answer);
    calls.infer(std::move(request));
  } catch (const std::exception& e) {
    if (request && !request->answered()) return;  // answers when it is destroyed
    Response r;
    r.error = Error(ErrorCode::bad_format, e.what());
    answer(std::move(r), true);
  }
}

bool PythonInstance::is_cancelled(uint64_t key) {
  std::lock_guard lock(mutex_);
  if (auto it = pending_.find(key); it != pending_.end()) return it->second.request->cancelled();
  for (const auto& [unused, flight] : flights_) {
    const uint64_t i = key - flight.first_key;
    if (i < flight.run->requests.size())
      return flight.run->requests[i] && flight.run->requests[i]->cancelled();
  }
  return false;
}

// Decoupled and iterative: requests to run again go back to the scheduler.
void PythonInstance::give_back(Flight& flight) {
  if (!config_.decoupled) return;
  BatchRun& run = *flight.run;
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < run.again.size(); ++i) {
    if (!run.again[i]) continue;
    if (auto it = pending_.find(flight.first_key + i); it != pending_.end()) {
      run.requests[i] = std::move(it->second.request);
      pending_.erase(it);
    }
  }
}

void PythonInstance::respond(const Json& m, const Frame& f) {
  const uint64_t key = json_unsigned(m.at("key"));
  const bool final = m.at("final").get<bool>();
  if (!final && m.at("response").is_null())
    fail(ErrorCode::bad_format, "the model's process sends a response that is none");
  std::optional<Response> response;
  if (!m.at("response").is_null()) {
    if (f.dropped) {
      response.emplace().error = Error(ErrorCode::busy, "the server holds as many bytes of answers as it may",
                                       config_.name, "retry later");
    } else {
      try {
        response = read_response(m["response"], f, config_);
      } catch (const std::exception&) {
        response.emplace().error = wrong_answer(config_.name);
      }
    }
  }
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
void PythonInstance::fail_pending(const Error& error, uint64_t first, uint64_t count) {
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

}  // namespace pelton::serve
