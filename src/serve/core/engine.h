// SPDX-License-Identifier: Apache-2.0
// What the server needs of an engine. An Engine is one loaded model version, immutable and shared; an
// Instance is run state used by one thread at a time; a Backend makes engines from files and is known by its
// name.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "serve/core/model_config.h"
#include "serve/core/model_dir.h"
#include "serve/core/request.h"

namespace pelton::serve {

// Takes the answers of requests that an engine has taken over (decoupled models). Any thread; lives as long
// as the request.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void partial(Request& request, Response&& response) = 0;
  // Ends the request; without `last`, nothing follows the responses already sent.
  virtual void finish(RequestPtr request, std::optional<Response>&& last) = 0;
};

// One execution. Requests are validated; with a batching model their `rows` add up to `rows`. The engine
// fills responses[i].outputs (or .error) for requests[i] and stamps the two inner times. An engine of a
// decoupled model may move requests out and answer them through `responder`, during the execution or later.
struct BatchRun {
  std::span<RequestPtr> requests;
  std::vector<Response> responses;
  std::vector<char> again;  // iterative models: set where the request is to run again; empty: nowhere
  int64_t rows = 1;
  Clock::time_point start, input_end, infer_end;  // an engine with a queue of its own may move `start`
  int64_t counted_rows = 0;                       // of requests that are part of the statistics
  Responder* responder = nullptr;

  void fail(const Error& error) {
    for (Response& r : responses) r.outputs.clear(), r.error = error;
  }
};

class Instance {
 public:
  virtual ~Instance() = default;
  // An exception fails every request of the batch.
  virtual void execute(BatchRun& run) = 0;

  // How many executions may be under way at once at this moment, 1 or more. Above 1 the scheduler may begin()
  // the next one while others run, so that an engine in another process need not wait for the way there and
  // back.
  virtual int depth() { return 1; }
  // Starts an execution and returns; `done` is called once, on any thread, when `run` is filled in. `run`
  // lives until then. An exception fails every request of the batch, and `done` is not called.
  virtual void begin(BatchRun& run, std::function<void()> done) {
    execute(run);
    done();
  }
};

class Engine {
 public:
  virtual ~Engine() = default;
  // `index` counts the instances of the model from 0.
  virtual std::unique_ptr<Instance> make_instance(int index) = 0;
  // True when an execution takes microseconds and an instance may be used by several threads at once:
  // requests then run in the caller's thread instead of a worker.
  virtual bool instant() const { return false; }
  // True when executions may ask the server for further inferences; such an engine tells the CallWait of a
  // request where it runs.
  virtual bool asks() const { return false; }
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Adds what the configuration leaves open (inputs, outputs), read from the model's files. What it had to
  // open for that may be returned: load() of the same version gets it back as `prepared`.
  virtual std::shared_ptr<const void> complete(Node& config, const ModelDir& dir, int64_t version) const = 0;
  virtual std::shared_ptr<Engine> load(const ModelConfig& config, const ModelDir& dir, int64_t version,
                                       std::shared_ptr<const void> prepared) const = 0;
  // The GPUs that its instances can run on; nullopt: it is told where they belong and sees to it itself.
  virtual std::optional<std::vector<int>> gpus() const { return std::vector<int>(); }
  // Which of the configuration's fields that are the engine's to honour it does: "optimization.priority" (its
  // work is done by the threads of its instances), "optimization.graph", "optimization.cuda.graphs".
  virtual bool honours(std::string_view field) const { return field == "optimization.priority"; }
  // True if loading such a model can run code that its files bring along.
  virtual bool runs_code() const { return false; }
};

// Backends by name. Filled once, before the repository starts.
class BackendTable {
 public:
  void add(std::string name, std::shared_ptr<const Backend> backend) {
    backends_[std::move(name)] = std::move(backend);
  }
  // not_found names the backend, or unsupported_op with the way out for one that is known and refused.
  const Backend& get(const std::string& name) const;

 private:
  std::map<std::string, std::shared_ptr<const Backend>, std::less<>> backends_;
};

// An instance that works on whole tensors: inputs of all requests are joined along the first dimension (one
// request: no copy), and each request gets its rows of the outputs (never a copy). Ragged inputs are joined
// flat or padded, as the configuration says.
class TensorInstance : public Instance {
 public:
  explicit TensorInstance(const ModelConfig& config);
  void execute(BatchRun& run) final;

 protected:
  // `token` is set when the batch is a single request that may be cancelled.
  virtual std::vector<TensorValue> run(const std::vector<TensorValue>& inputs, const CancelToken* token) = 0;

 private:
  static constexpr size_t kMaxPaddedBytes = size_t{256} << 20;
  bool pads_too_much(const BatchRun& batch) const;
  void execute_apart(BatchRun& batch);

  struct Ragged {
    std::string name;
    std::optional<double> padding;
  };
  bool batches_ = false;
  std::vector<Ragged> ragged_;
  std::vector<BatchInput> batch_inputs_;
  std::vector<BatchOutput> batch_outputs_;
};

}  // namespace pelton::serve
