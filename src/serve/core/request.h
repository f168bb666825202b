// SPDX-License-Identifier: Apache-2.0
// One inference request on its way through the server, and its response. Data is in wire layout: dense
// little-endian elements, BYTES elements behind their lengths.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "serve/core/blob.h"
#include "serve/core/wire_type.h"

namespace pelton::serve {

using Clock = std::chrono::steady_clock;
using Parameter = std::variant<bool, int64_t, uint64_t, double, std::string>;
using Parameters = std::map<std::string, Parameter, std::less<>>;

struct TensorValue {
  std::string name;
  DType dtype = DType::f32;
  Dims dims;
  Blob data;
  size_t stored_bytes = 0;  // outputs: bytes that went to shared memory instead
};

// Where the client wants one output and in which form.
struct RequestedOutput {
  std::string name;
  int64_t classes = 0;         // classification extension; 0 is off
  std::optional<bool> binary;  // HTTP only
  std::string region;          // shared-memory region; empty: in the response
  size_t region_offset = 0, region_size = 0;
};

// Correlation id of a sequence: a number or a text. 0 and "" mean none.
struct SequenceId {
  uint64_t number = 0;
  std::string text;
  bool any() const { return number != 0 || !text.empty(); }
  auto operator<=>(const SequenceId&) const = default;
};

struct Response {
  std::string model, version, id;
  Parameters parameters;
  std::vector<TensorValue> outputs;
  std::optional<Error> error;  // then there are no outputs
};

// Set by the front end when the client has gone; read wherever work could still be saved.
class CancelToken {
 public:
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  const std::atomic<bool>* flag() const { return &cancelled_; }

 private:
  std::atomic<bool> cancelled_{false};
};

enum class Stage : uint8_t { queue, compute_input, compute_infer, compute_output };
inline constexpr int kStages = 4;

class CallWait;
class Model;
class Request;

// What a traced request carries; called once, before its final answer leaves.
class RequestTrace {
 public:
  virtual ~RequestTrace() = default;
  virtual void finish(const Request& request, const Response& response) = 0;
};

// Owns the obligation to answer: exactly one final response reaches the callback, also when the request is
// dropped (an internal error then). Callbacks run on any thread and must not throw.
class Request {
 public:
  using Callback = std::function<void(Response&&, bool final)>;

  Request() : arrival(Clock::now()) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request();

  void set_callback(Callback callback) { callback_ = std::move(callback); }
  void respond(Response&& response);          // final
  void respond(const Error& error);           // final
  void respond_partial(Response&& response);  // decoupled models only
  bool answered() const { return !callback_; }

  const TensorValue* input(std::string_view name) const;
  bool cancelled() const { return token && token->cancelled(); }
  bool expired(Clock::time_point now) const { return deadline && now >= *deadline; }

  std::string model, version, id;  // version: empty for the policy's newest
  Parameters parameters;           // the client's own; reserved ones are parsed into the fields below
  std::vector<TensorValue> inputs;
  std::vector<RequestedOutput> outputs;  // empty: all
  SequenceId sequence;
  bool sequence_start = false, sequence_end = false;
  uint64_t priority = 0;                      // 0: the model's default
  uint64_t timeout_us = 0;                    // queue time-out asked for; 0: the model's default
  std::optional<Clock::time_point> deadline;  // from the transport
  std::shared_ptr<CancelToken> token;
  int64_t rows = 1;             // first dimension when the model batches
  bool counted = true;          // false for warm-up: not part of the statistics
  bool streams = false;         // the front end takes several responses
  std::string cache_key;        // not empty: the outputs go to the response cache
  uint32_t responses_sent = 0;  // decoupled models

  // Filled on the way, for statistics and traces.
  Clock::time_point arrival, enqueued, compute_start, input_end, infer_end, compute_end;
  std::string traceparent;  // W3C context of the caller, if any
  std::shared_ptr<RequestTrace> trace, parent_trace;
  std::shared_ptr<CallWait> wait;  // a model's own request: what its execution waits for; null: a client's
  std::shared_ptr<const Model> target;  // keeps the model loaded until the answer is out

 private:
  Callback callback_;
};

using RequestPtr = std::unique_ptr<Request>;

}  // namespace pelton::serve
