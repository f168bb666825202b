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
  // One request and its answer; the error text, or empty.
  virtual std::string infer(const SequenceMark& mark) = 0;
};

std::unique_ptr<LoadClient> make_http_client(const std::string& host, uint16_t port);
// unsupported_op in a build without gRPC.
std::unique_ptr<LoadClient> make_grpc_client(const std::string& host, uint16_t port);

}  // namespace pelton::serve
