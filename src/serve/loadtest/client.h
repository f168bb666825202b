// SPDX-License-Identifier: Apache-2.0
// A connection of the load generator: blocking, used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/core/request.h"
#include "serve/loadtest/options.h"

namespace pelton::serve {

struct InputSpec {
  std::string name;
  DType dtype = DType::f32;
  Dims dims;  // as the model declares them, -1 open
};
struct TargetModel {
  std::string version;
  bool batches = false;
  bool decoupled = false;  // a request has any number of responses
  std::vector<InputSpec> inputs;
  std::vector<std::string> outputs;
};

// Marks of a request inside a sequence; id 0: none.
struct SequenceMark {
  uint64_t id = 0;
  bool start = false, end = false;
};

class LoadClient {
 public:
  virtual ~LoadClient() = default;
  virtual TargetModel describe(const LoadOptions& options) = 0;
  // Builds what infer() sends again and again.
  virtual void prepare(const LoadOptions& options, const TargetModel& model,
                       const std::vector<TensorValue>& inputs) = 0;
  // One request and its answer, of a decoupled model all of its responses; the error text, or empty.
  virtual std::string infer(const SequenceMark& mark) = 0;
};

struct Endpoint {
  bool grpc = false;
  std::string host;  // without brackets
  uint16_t port = 0;
  std::string authority() const;  // host:port, [host]:port for IPv6
};
// usage error if it is none.
Endpoint parse_endpoint(std::string url);

std::unique_ptr<LoadClient> make_http_client(const Endpoint& endpoint, double timeout_s);
// unsupported_op in a build without gRPC.
std::unique_ptr<LoadClient> make_grpc_client(const Endpoint& endpoint, double timeout_s);

}  // namespace pelton::serve
