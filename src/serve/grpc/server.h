// SPDX-License-Identifier: Apache-2.0
// The gRPC front end. A build without gRPC has the same interface and says that it cannot serve.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "serve/core/access.h"
#include "serve/core/core.h"

namespace pelton::serve {

struct GrpcOptions {
  std::string address = "127.0.0.1";  // or unix:PATH
  uint16_t port = 8001;               // 0: any free one
  bool reuse_port = false;
  size_t max_connections = 1024;
  size_t max_message_bytes = 64 << 20;
  size_t quota_bytes = size_t{2} << 30;              // that the library may hold for messages under way
  std::chrono::milliseconds header_timeout{10'000};  // for TLS and the first frames of a connection
  std::chrono::milliseconds idle_timeout{300'000};   // of a connection without calls
  TlsOptions tls;
  AccessRules access;                                // keys travel as metadata "triton-grpc-protocol-HEADER"
  std::map<std::string, int> arguments;              // channel arguments by their published names
  int compression = 0;                               // of answers: 0 none to 3 high
  std::chrono::milliseconds stall_timeout{120'000};  // answers that nobody reads
  HeaderPattern forward;                             // metadata that becomes parameters of inference requests
};

class GrpcServer {
 public:
  virtual ~GrpcServer() = default;
  virtual std::string endpoint() const = 0;
  virtual void set_serving(bool ready) = 0;  // what the health service says
  // No new calls; those under way have `seconds` before they are cancelled.
  virtual void drain(double seconds) = 0;
  virtual bool drained() const = 0;
  virtual void stop() = 0;  // waits for the end of drain()
};

bool grpc_available();
// unsupported_op in a build without gRPC; io if the address is taken.
std::unique_ptr<GrpcServer> make_grpc_server(Core& core, const GrpcOptions& options);

}  // namespace pelton::serve
