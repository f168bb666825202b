// SPDX-License-Identifier: Apache-2.0
#include "serve/core/batch_runner.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "serve/core/model.h"

namespace pelton::serve {

Error error_from_current_exception(const std::string& model) {
  try {
    throw;
  } catch (const Error& e) {
    return e;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::out_of_memory, "not enough memory to run the request", model);
  } catch (const std::exception& e) {
    return Error(ErrorCode::internal, cat("the engine failed: ", e.what()), model);
  } catch (...) {
    return Error(ErrorCode::internal, "the engine failed with an unknown exception", model);
  }
}

BatchRun BatchRunner::prepare(Batch& batch) {
  BatchRun run;
  run.requests = batch.requests;
  run.responses.resize(batch.requests.size());
  run.rows = 0;
  run.responder = this;
  run.start = run.input_end = run.infer_end = Clock::now();
  for (const RequestPtr& r : batch.requests) {
    run.rows += r->rows;
    if (r->counted) run.counted_rows += r->rows;
    r->compute_start = r->input_end = r->infer_end = r->compute_end = run.start;
  }
  return run;
}

void BatchRunner::complete(Batch& batch, BatchRun& run) {
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    Response& response = run.responses[i];
    if (response.error || !batch.requests[i]) continue;
    try {
      if (cache_ && !batch.requests[i]->cache_key.empty())
        cache_->insert(batch.requests[i]->cache_key, response.outputs);
      finish_(*batch.requests[i], response);
    } catch (...) {
      response.outputs.clear();
      response.error = error_from_current_exception(name_);
    }
  }
  const auto end = Clock::now();
  if (run.infer_end == run.start) run.infer_end = end;
  if (run.counted_rows)
    stats_->record_execution(static_cast<uint64_t>(run.counted_rows), ns_between(run.start, run.input_end),
                             ns_between(run.input_end, run.infer_end), ns_between(run.infer_end, end));
  for (const RequestPtr& r : batch.requests) {
    if (!r) continue;
    r->compute_start = run.start;
    r->input_end = run.input_end;
    r->infer_end = run.infer_end;
    r->compute_end = end;
  }
  batch.responses = std::move(run.responses);
  batch.again = std::move(run.again);
}

void BatchRunner::execute(Instance& instance, Batch& batch,
                          const std::function<void(BatchRun&)>& before_finish) {
  BatchRun run = prepare(batch);
  try {
    instance.execute(run);
  } catch (...) {
    run.fail(error_from_current_exception(name_));
  }
  if (before_finish) before_finish(run);
  complete(batch, run);
}

void BatchRunner::begin(Instance& instance, Batch&& batch, std::function<void(Batch&&)> done) {
  struct Flight {
    Batch batch;
    BatchRun run;
    std::atomic<bool> ended{false};
  };
  auto flight = std::make_shared<Flight>();
  flight->batch = std::move(batch);
  flight->run = prepare(flight->batch);
  // Once, whatever the engine does: an exception after it has called back must not answer again.
  auto end = [this, flight, done = std::move(done)] {
    if (flight->ended.exchange(true)) return;
    complete(flight->batch, flight->run);
    done(std::move(flight->batch));
  };
  try {
    instance.begin(flight->run, end);
  } catch (...) {
    const Error error = error_from_current_exception(name_);
    if (flight->ended) return;
    flight->run.fail(error);
    end();
  }
}

void BatchRunner::answer(Request& request, Response&& response) {
  const auto now = Clock::now();
  if (request.counted) {
    const bool decoupled = request.target && request.target->config().decoupled;
    if (decoupled && (response.error || !response.outputs.empty()))
      stats_->record_response(request.responses_sent, ns_between(request.arrival, now), !response.error);
    if (response.error) {
      stats_->record_failure(fail_reason(response.error->code()), ns_between(request.arrival, now));
    } else {
      stats_->record_success(request, now);
      if (!request.cache_key.empty()) stats_->record_cache(false, ns_between(request.arrival, now));
    }
  }
  request.respond(std::move(response));
}

void BatchRunner::deliver(Batch&& batch) {
  for (size_t i = 0; i < batch.requests.size(); ++i) {
    if (!batch.requests[i]) continue;
    answer(*batch.requests[i], std::move(batch.responses[i]));
    batch.requests[i].reset();  // frees the inputs before the next answer is written
  }
}

void BatchRunner::refuse(RequestPtr request, const Error& error) {
  if (request->counted)
    stats_->record_failure(fail_reason(error.code()), ns_between(request->arrival, Clock::now()));
  request->respond(error);
}

void BatchRunner::partial(Request& request, Response&& response) {
  try {
    finish_(request, response);
  } catch (...) {
    response.outputs.clear();
    response.error = error_from_current_exception(name_);
  }
  send_partial(request, std::move(response));
}

void BatchRunner::send_partial(Request& request, Response&& response) {
  if (request.counted)
    stats_->record_response(request.responses_sent, ns_between(request.arrival, Clock::now()),
                            !response.error);
  ++request.responses_sent;
  request.respond_partial(std::move(response));
}

void BatchRunner::finish(RequestPtr request, std::optional<Response>&& last) {
  const bool empty = !last || (last->outputs.empty() && !last->error);
  Response response = last ? std::move(*last) : Response();
  try {
    if (empty) {
      response.model = request->model;
      response.version = request->version;
    } else if (!response.error) {
      finish_(*request, response);
    }
  } catch (...) {
    response.outputs.clear();
    response.error = error_from_current_exception(name_);
  }
  const auto now = Clock::now();
  request->compute_end = now;
  if (request->infer_end == request->compute_start) request->infer_end = now;  // the engine does not say
  answer(*request, std::move(response));
}

}  // namespace pelton::serve
