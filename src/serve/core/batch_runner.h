// SPDX-License-Identifier: Apache-2.0
// The last stretch of every scheduler: runs a batch on an instance, finishes the responses, keeps the
// statistics, answers the requests.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/core/engine.h"
#include "serve/core/response_cache.h"
#include "serve/core/stats.h"

namespace pelton::serve {

// Runs before a response leaves: restores the client's shapes, picks outputs, applies classification.
using FinishResponse = std::function<void(const Request&, Response&)>;

struct Batch {
  uint64_t ticket = 0;
  std::vector<RequestPtr> requests;  // null where the engine has taken the request over
  std::vector<Response> responses;
  std::vector<char> again;
};

class BatchRunner final : public Responder {
 public:
  BatchRunner(std::string model, std::shared_ptr<ModelStats> stats, std::shared_ptr<ResponseCache> cache,
              FinishResponse finish)
      : name_(std::move(model)),
        stats_(std::move(stats)),
        cache_(std::move(cache)),
        finish_(std::move(finish)) {}

  // `before_finish` may look at and change what the engine returned.
  void execute(Instance& instance, Batch& batch, const std::function<void(BatchRun&)>& before_finish = {});
  // The same in two halves: begins the execution; `done` gets the batch with its responses, on any thread.
  void begin(Instance& instance, Batch&& batch, std::function<void(Batch&&)> done);
  // Answers what the batch still holds.
  void deliver(Batch&& batch);
  // Answers one request with an error that is not the engine's.
  void refuse(RequestPtr request, const Error& error);

  // A response that is finished already, with more to come.
  void send_partial(Request& request, Response&& response);
  void partial(Request& request, Response&& response) override;
  void finish(RequestPtr request, std::optional<Response>&& last) override;

 private:
  BatchRun prepare(Batch& batch);
  void complete(Batch& batch, BatchRun& run);
  void answer(Request& request, Response&& response);

  const std::string name_;
  const std::shared_ptr<ModelStats> stats_;
  const std::shared_ptr<ResponseCache> cache_;
  const FinishResponse finish_;
};

// What is being handled, as an Error.
Error error_from_current_exception(const std::string& model);

}  // namespace pelton::serve
