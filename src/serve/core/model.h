// SPDX-License-Identifier: Apache-2.0
// One loaded model version: what a request meets. Checks requests, owns the scheduler, finishes responses.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "serve/core/scheduler.h"

namespace pelton::serve {

class Model : public std::enable_shared_from_this<Model> {
 public:
  // Makes the scheduler over `engine`; labels are read from `dir`.
  Model(ModelConfig config, int64_t version, const ModelDir& dir, std::shared_ptr<Engine> engine,
        std::shared_ptr<ModelStats> stats, Limits limits);
  // With a scheduler of its own (ensembles).
  Model(ModelConfig config, int64_t version, const ModelDir& dir, std::shared_ptr<ModelStats> stats,
        std::shared_ptr<Tracer> tracer);
  void set_scheduler(std::unique_ptr<Scheduler> scheduler) { scheduler_ = std::move(scheduler); }
  FinishResponse finisher() const;

  const ModelConfig& config() const { return config_; }
  int64_t version() const { return version_; }
  const std::string& version_text() const { return version_text_; }
  ModelStats& stats() const { return *stats_; }

  // Checks the request and hands it on. Every outcome goes to the request's callback.
  void infer(RequestPtr request) const;
  void stop() const { scheduler_->stop(); }
  // Runs the configured warm-up samples; an error names the sample.
  void warm_up(const ModelDir& dir) const;

 private:
  void check(Request& request) const;  // throws what the client did wrong; applies input reshapes
  void finish(const Request& request, Response& response) const;
  bool answer_from_cache(RequestPtr& request) const;

  const ModelConfig config_;
  const int64_t version_;
  const std::string version_text_;
  const std::shared_ptr<ModelStats> stats_;
  std::map<std::string, std::vector<std::string>, std::less<>> labels_;  // by output
  const std::shared_ptr<Tracer> tracer_;                                 // null: no tracing
  std::shared_ptr<ResponseCache> cache_;                                 // null: not cached
  uint64_t load_ = 0;                                                    // counts the loads of this process
  std::unique_ptr<Scheduler> scheduler_;
};

// Shape as the client sees it: with -1 in front when the model batches.
Dims client_dims(const ModelConfig& config, const TensorSpec& spec);

// The top `classes` of each row as BYTES "score:index[:label]".
TensorValue classify(const TensorValue& scores, int64_t classes, bool batched,
                     const std::vector<std::string>& labels);

}  // namespace pelton::serve
