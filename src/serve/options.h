// SPDX-License-Identifier: Apache-2.0
// Everything that `pelton serve` can be told, with its defaults. Reading them from a command line is flags.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "serve/core/access.h"
#include "serve/core/core.h"

namespace pelton::serve {

struct PortOptions {
  bool on = true;
  std::string address = "127.0.0.1";  // HTTP and metrics also take unix:PATH
  uint16_t port = 0;
  bool reuse = false;
  int threads = 0;  // 0: by the CPUs of the process
  TlsOptions tls;   // HTTP and gRPC
  AccessRules access;
  HeaderPattern forward;
};

// Of connections over gRPC.
struct GrpcTuning {
  std::map<std::string, int> arguments;  // by the library's published names of channel arguments
  int compression = 0;                   // of answers: 0 none to 3 high
};

struct ServeOptions {
  CoreOptions core;
  PortOptions http{.port = 8000}, grpc{.port = 8001}, metrics{.port = 8002};
  uint64_t max_body_bytes = 64 << 20;
  uint64_t max_connections = 1024;
  double header_timeout_s = 10;
  std::vector<std::string> allowed_hosts, allowed_origins;
  bool exit_on_error = true;       // a model that fails to load at start ends the server
  int min_sm = 0;                  // compute capability, times 10, that a GPU has to have
  bool map_models = false;         // map plan files instead of reading them into private memory
  std::string python = "python3";  // runs Python models
  std::string onnxruntime;         // library that runs backend onnxruntime; empty: Pelton does
  std::vector<std::pair<std::string, std::string>> engines;   // backend name, shared library
  std::string trace_url = "http://localhost:4318/v1/traces";  // collector of mode opentelemetry
  std::map<std::string, std::string> trace_resource;
  bool log_chosen = false;  // core.log holds over the level of the process
  GrpcTuning grpc_tuning;
  double exit_timeout_s = 30;  // how long SIGTERM waits for requests under way
};

// Runs until SIGINT or SIGTERM, then drains. Prints the ready line with the addresses on standard output (one
// JSON object with `json`). Returns the process's exit status.
int run_server(const ServeOptions& options, const BackendTable& backends, bool json);

}  // namespace pelton::serve
