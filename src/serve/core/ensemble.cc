// SPDX-License-Identifier: Apache-2.0
#include "serve/core/ensemble.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "base/error.h"
#include "serve/core/call_graph.h"

namespace pelton::serve {
namespace {

// Shapes that can be equal for some request.
bool can_match(const Dims& a, const Dims& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && a[i] != -1 && b[i] != -1) return false;
  return true;
}

struct Wire {
  DType dtype;
  Dims dims;  // as a client of the producer sees them
  std::string from;
};

void check_wiring(const ModelConfig& c, const StepResolver& resolve) {
  std::map<std::string, Wire> wires;
  for (const TensorSpec& t : c.inputs) wires[t.name] = {t.dtype, client_dims(c, t), "the ensemble's input"};
  std::set<size_t> left;
  std::vector<std::shared_ptr<const Model>> models;
  for (size_t i = 0; i < c.steps.size(); ++i) left.insert(i), models.push_back(resolve(c.steps[i]));
  for (const EnsembleStep& s : c.steps)
    for (const auto& [out, tensor] : s.outputs) {
      size_t producers = 0;
      for (const EnsembleStep& other : c.steps)
        for (const auto& [o, t] : other.outputs) producers += t == tensor;
      if (producers > 1 || c.input(tensor))
        fail(ErrorCode::bad_format, cat("ensemble tensor '", tensor, "' has more than one producer"), c.name);
    }
  for (bool moved = true; moved && !left.empty();) {
    moved = false;
    for (auto it = left.begin(); it != left.end();) {
      const EnsembleStep& s = c.steps[*it];
      const ModelConfig& m = models[*it]->config();
      bool have_all = true;
      for (const auto& [in, tensor] : s.inputs) have_all = have_all && wires.contains(tensor);
      if (!have_all) {
        ++it;
        continue;
      }
      for (const auto& [in, tensor] : s.inputs) {
        const TensorSpec* spec = m.input(in);
        if (!spec) fail(ErrorCode::bad_name, cat("step '", s.model, "' has no input '", in, "'"), c.name);
        const Wire& w = wires[tensor];
        if (w.dtype != spec->dtype)
          fail(ErrorCode::bad_type,
               cat("tensor '", tensor, "' from ", w.from, " is ", wire_name(w.dtype), ", input '", in,
                   "' of step '", s.model, "' is ", wire_name(spec->dtype)),
               c.name);
        if (!can_match(w.dims, client_dims(m, *spec)))
          fail(ErrorCode::bad_shape,
               cat("tensor '", tensor, "' from ", w.from, " has shape ", w.dims, ", input '", in,
                   "' of step '", s.model, "' has ", client_dims(m, *spec)),
               c.name);
      }
      for (const TensorSpec& spec : m.inputs)
        if (!spec.optional && !s.inputs.contains(spec.name))
          fail(ErrorCode::bad_format, cat("input '", spec.name, "' of step '", s.model, "' is not mapped"),
               c.name);
      for (const auto& [out, tensor] : s.outputs) {
        const TensorSpec* spec = m.output(out);
        if (!spec) fail(ErrorCode::bad_name, cat("step '", s.model, "' has no output '", out, "'"), c.name);
        wires[tensor] = {spec->dtype, client_dims(m, *spec), cat("step '", s.model, "'")};
      }
      if (c.max_batch > 0 && m.max_batch > 0 && m.max_batch < c.max_batch)
        fail(ErrorCode::bad_format,
             cat("max_batch_size ", c.max_batch, " is above that of step '", s.model, "', ", m.max_batch),
             c.name);
      it = left.erase(it);
      moved = true;
    }
  }
  if (!left.empty()) {
    const EnsembleStep& s = c.steps[*left.begin()];
    for (const auto& [in, tensor] : s.inputs)
      if (!wires.contains(tensor))
        fail(ErrorCode::bad_format,
             cat("step '", s.model, "' waits for tensor '", tensor, "', which nothing before it produces"),
             c.name, "check input_map for a typing mistake or a cycle");
  }
  for (const TensorSpec& t : c.outputs) {
    auto w = wires.find(t.name);
    if (w == wires.end())
      fail(ErrorCode::bad_format, cat("no step produces the ensemble's output '", t.name, "'"), c.name);
    if (w->second.dtype != t.dtype)
      fail(ErrorCode::bad_type,
           cat("output '", t.name, "' is ", wire_name(t.dtype), ", ", w->second.from, " gives ",
               wire_name(w->second.dtype)),
           c.name);
    if (!can_match(w->second.dims, client_dims(c, t)))
      fail(ErrorCode::bad_shape,
           cat("output '", t.name, "' has shape ", client_dims(c, t), ", ", w->second.from, " gives ",
               w->second.dims),
           c.name);
  }
}

class EnsembleScheduler final : public Scheduler {
 public:
  EnsembleScheduler(const ModelConfig& config, std::shared_ptr<ModelStats> stats, Limits limits,
                    FinishResponse finish, StepResolver resolve)
      : config_(config),
        stats_(std::move(stats)),
        finish_(std::move(finish)),
        resolve_(std::move(resolve)),
        limit_(config.max_inflight ? config.max_inflight : limits.ensemble_inflight) {
    check_wiring(config_, resolve_);
  }

  void submit(RequestPtr request) override;
  void stop() override { stopping_.store(true); }

 private:
  // One request on its way through the steps. Shared by the step callbacks; the last one to go answers.
  struct Run {
    std::mutex mutex;
    RequestPtr request;
    std::map<std::string, TensorValue> tensors;
    std::vector<bool> started, answered;
    size_t running = 0;
    std::optional<Error> error;
    Clock::time_point start;
  };

  void advance(const std::shared_ptr<Run>& run);
  void start_step(const std::shared_ptr<Run>& run, size_t step, RequestPtr request);
  void finish(Run& run);

  const ModelConfig& config_;
  const std::shared_ptr<ModelStats> stats_;
  const FinishResponse finish_;
  const StepResolver resolve_;
  const size_t limit_;
  std::atomic<size_t> inflight_{0};
  std::atomic<bool> stopping_{false};
};

void EnsembleScheduler::submit(RequestPtr request) {
  const bool admitted = inflight_.fetch_add(1) < limit_ && !stopping_.load();
  if (!admitted) {
    inflight_.fetch_sub(1);
    const Error e(ErrorCode::busy,
                  stopping_.load() ? std::string("the server is stopping")
                                   : cat("the ensemble already has ", limit_, " requests in flight"),
                  config_.name, "retry later");
    stats_->record_failure(FailReason::rejected, ns_between(request->arrival, Clock::now()));
    return request->respond(e);
  }
  auto run = std::make_shared<Run>();
  run->start = Clock::now();
  request->enqueued = run->start;
  for (TensorValue& t : request->inputs) run->tensors[t.name] = t;
  run->request = std::move(request);
  run->started.assign(config_.steps.size(), false);
  run->answered.assign(config_.steps.size(), false);
  advance(run);
}

void EnsembleScheduler::advance(const std::shared_ptr<Run>& run) {
  std::vector<std::pair<size_t, RequestPtr>> ready;
  bool done = false;
  {
    std::lock_guard lock(run->mutex);
    if (!run->request) return;  // another step's thread has just answered
    const Request& parent = *run->request;
    if (!run->error && parent.cancelled())
      run->error = Error(ErrorCode::cancelled, "the request was cancelled", config_.name);
    if (!run->error && parent.expired(Clock::now()))
      run->error =
          Error(ErrorCode::deadline, "the request's deadline passed between two steps", config_.name);
    for (size_t i = 0; i < config_.steps.size() && !run->error; ++i) {
      const EnsembleStep& s = config_.steps[i];
      if (run->started[i]) continue;
      const bool have_all = std::all_of(s.inputs.begin(), s.inputs.end(),
                                        [&](const auto& m) { return run->tensors.contains(m.second); });
      if (!have_all) continue;
      auto r = std::make_unique<Request>();
      r->id = parent.id;
      r->parameters = parent.parameters;
      r->priority = parent.priority;
      r->timeout_us = parent.timeout_us;
      r->deadline = parent.deadline;
      r->token = parent.token;
      r->counted = parent.counted;
      r->parent_trace = parent.trace;
      if (parent.wait) r->wait = parent.wait->fork();
      r->sequence = parent.sequence;
      r->sequence_start = parent.sequence_start;
      r->sequence_end = parent.sequence_end;
      for (const auto& [in, tensor] : s.inputs) {
        TensorValue t = run->tensors.at(tensor);
        t.name = in;
        r->inputs.push_back(std::move(t));
      }
      for (const auto& [out, tensor] : s.outputs) {
        RequestedOutput o;
        o.name = out;
        r->outputs.push_back(std::move(o));
      }
      run->started[i] = true;
      ++run->running;
      ready.emplace_back(i, std::move(r));
    }
    done = run->running == 0;
  }
  if (done) return finish(*run);
  for (auto& [i, r] : ready) start_step(run, i, std::move(r));
}

void EnsembleScheduler::start_step(const std::shared_ptr<Run>& run, size_t step, RequestPtr request) {
  request->set_callback([this, run, step](Response&& response, bool final) {
    {
      std::lock_guard lock(run->mutex);
      if (final) --run->running;
      auto fail_step = [&](const Error& e) {
        if (!run->error) run->error = e.within(cat(config_.name, " step '", config_.steps[step].model, "'"));
      };
      // A decoupled step may send its one response before the end of it.
      const bool carries = final ? !response.outputs.empty() : true;
      if (response.error)
        fail_step(*response.error);
      else if (carries && run->answered[step])
        fail_step(
            Error(ErrorCode::unsupported_op, "a decoupled step of an ensemble sent more than one response"));
      else if (final && !carries && !run->answered[step])
        fail_step(Error(ErrorCode::unsupported_op, "a decoupled step of an ensemble sent no response"));
      else if (carries) {
        run->answered[step] = true;
        for (TensorValue& t : response.outputs) {
          const std::string tensor = config_.steps[step].outputs.at(t.name);
          t.name = tensor;
          run->tensors[tensor] = std::move(t);
        }
      }
    }
    if (final) advance(run);
  });
  std::shared_ptr<const Model> model;
  try {
    model = resolve_(config_.steps[step]);
  } catch (const Error& e) {
    // The client's model is there; that a step of it was unloaded may pass.
    if (e.code() != ErrorCode::not_found) return request->respond(e);
    return request->respond(Error(ErrorCode::busy, e.message(), e.where(), e.fix()));
  }
  model->infer(std::move(request));
}

void EnsembleScheduler::finish(Run& run) {
  // Two step threads may both find nothing left to run: the request is taken exactly once.
  RequestPtr request;
  {
    std::lock_guard lock(run.mutex);
    request = std::move(run.request);
  }
  if (!request) return;
  Response response;
  if (run.error) {
    response.error = run.error;
  } else {
    try {
      for (const TensorSpec& spec : config_.outputs) {
        auto t = run.tensors.find(spec.name);
        if (t == run.tensors.end())
          fail(ErrorCode::internal, cat("output '", spec.name, "' was never produced"), config_.name);
        response.outputs.push_back(std::move(t->second));
      }
      finish_(*request, response);
    } catch (const Error& e) {
      response.outputs.clear();
      response.error = e;
    }
  }
  const auto end = Clock::now();
  request->compute_start = request->input_end = run.start;
  request->infer_end = request->compute_end = end;
  if (request->counted) {
    const auto ns = ns_between(run.start, end);
    if (response.error) {
      stats_->record_failure(fail_reason(response.error->code()), ns_between(request->arrival, end));
    } else {
      stats_->record_execution(static_cast<uint64_t>(request->rows), 0, ns, 0);
      stats_->record_success(*request, end);
    }
  }
  inflight_.fetch_sub(1);
  request->respond(std::move(response));
}

}  // namespace

std::unique_ptr<Scheduler> make_ensemble_scheduler(const ModelConfig& config,
                                                   std::shared_ptr<ModelStats> stats, Limits limits,
                                                   FinishResponse finish, StepResolver resolve) {
  return std::make_unique<EnsembleScheduler>(config, std::move(stats), limits, std::move(finish),
                                             std::move(resolve));
}

}  // namespace pelton::serve
