// SPDX-License-Identifier: Apache-2.0
// What the process of a model sends: answers of executions, responses of decoupled models, requests of its
// own.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_number.h"
#include "base/log.h"
#include "serve/core/batch_runner.h"
#include "serve/engine/python_frames.h"
#include "serve/engine/python_instance.h"
#include "serve/engine/python_messages.h"
#include "serve/engine/python_talk.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::json;

// What is being handled, about an answer that cannot be read: the model's fault and not its client's.
Error wrong_answer(const std::string& model) {
  const Error e = error_from_current_exception(model);
  if (e.code() == ErrorCode::busy || e.code() == ErrorCode::out_of_memory) return e;
  return Error(ErrorCode::plugin, e.message(), model, e.fix());
}

}  // namespace

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
  const uint64_t begun = json_unsigned(m.at("begun")), ended = json_unsigned(m.at("ended"));
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
  if (final) {
    const auto now = Clock::now();
    request->input_end = process_time(begun, request->compute_start, now);
    request->infer_end = process_time(ended, request->input_end, now);
    pending.responder->finish(std::move(pending.request), std::move(response));
  } else {
    pending.responder->partial(*request, std::move(*response));
  }
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
