// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "serve/engine/worker_process.h"
#include "serve/grpc/server.h"
#include "serve/http/server.h"
#include "serve/log_writer.h"
#include "serve/options.h"
#include "serve/otlp.h"

namespace pelton::serve {
namespace {

bool is_loopback(const std::string& address) {
  return address.starts_with("unix:") || address == "localhost" || address == "::1" ||
         address.starts_with("127.");
}

HttpOptions http_options(const ServeOptions& o, const PortOptions& port) {
  HttpOptions h;
  h.address = port.address;
  h.port = port.port;
  h.reuse_port = port.reuse;
  h.threads = port.threads > 0 ? port.threads : std::clamp(cpu_limits().usable() / 2, 1, 8);
  h.max_connections = o.max_connections;
  h.header_timeout = std::chrono::milliseconds(static_cast<int64_t>(o.header_timeout_s * 1000));
  h.router.max_body_bytes = o.max_body_bytes;
  h.router.check_host = is_loopback(port.address);
  h.router.allowed_hosts.push_back(port.address);
  h.router.allowed_hosts.insert(h.router.allowed_hosts.end(), o.allowed_hosts.begin(), o.allowed_hosts.end());
  h.router.allowed_origins = o.allowed_origins;
  h.router.access = port.access;
  h.router.forward = port.forward;
  h.tls = port.tls;
  return h;
}

struct FrontEnds {
  std::unique_ptr<HttpServer> http, metrics;
  std::unique_ptr<GrpcServer> grpc;

  void drain(double seconds) {
    if (http) http->drain();
    if (grpc) grpc->drain(seconds);
  }
  bool drained() const { return (!http || http->drained()) && (!grpc || grpc->drained()); }
  void stop() {
    if (http) http->stop();
    if (grpc) grpc->stop();
    if (metrics) metrics->stop();
  }
};

FrontEnds open_ports(const ServeOptions& o, Core& core) {
  FrontEnds f;
  if (o.http.on) f.http = std::make_unique<HttpServer>(core, http_options(o, o.http));
  if (o.metrics.on) {
    HttpOptions h = http_options(o, o.metrics);
    h.threads = 1;
    h.router.api = false;
    h.router.metrics = true;
    f.metrics = std::make_unique<HttpServer>(core, std::move(h));
  }
  if (o.grpc.on) {
    if (!grpc_available()) {
      log_warn("this build has no gRPC: only HTTP is served");
    } else {
      GrpcOptions g;
      g.address = o.grpc.address;
      g.port = o.grpc.port;
      g.reuse_port = o.grpc.reuse;
      g.max_connections = o.max_connections;
      g.header_timeout = std::chrono::milliseconds(static_cast<int64_t>(o.header_timeout_s * 1000));
      g.max_message_bytes = o.max_body_bytes;
      g.quota_bytes = o.core.inflight_bytes;
      g.tls = o.grpc.tls;
      g.access = o.grpc.access;
      g.forward = o.grpc.forward;
      g.arguments = o.grpc_tuning.arguments;
      g.compression = o.grpc_tuning.compression;
      f.grpc = make_grpc_server(core, g);
    }
  }
  return f;
}

void print_ready(const FrontEnds& f, bool json) {
  std::string line = json ? "{\"event\":\"ready\"" : "ready:";
  auto add = [&](const char* name, const std::string& endpoint) {
    line += json ? cat(",\"", name, "\":\"", endpoint, "\"") : cat(" ", name, " ", endpoint);
  };
  if (f.http) add("http", f.http->endpoint());
  if (f.grpc) add("grpc", f.grpc->endpoint());
  if (f.metrics) add("metrics", f.metrics->endpoint());
  std::printf("%s%s\n", line.c_str(), json ? "}" : "");
  std::fflush(stdout);
}

// What does not end by itself when the time to stop is over: processes of models are killed, so that their
// requests end with an error, and if something is still under way after that, the server ends without it.
class LastResort {
 public:
  LastResort(std::chrono::duration<double> left, int status) {
    thread_ = std::thread([this, left, status] {
      std::unique_lock lock(mutex_);
      if (ended_.wait_for(lock, left + kGrace, [&] { return done_; })) return;
      log_error("the time to stop is over: what is still under way is given up");
      WorkerProcess::kill_all();
      if (ended_.wait_for(lock, kGrace, [&] { return done_; })) return;
      WorkerProcess::kill_all();  // those that were started again
      stop_log_writer();
      std::_Exit(status);
    });
  }
  ~LastResort() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    ended_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  static constexpr auto kGrace = std::chrono::seconds(1);
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

using Loading = std::future<std::map<std::string, std::string>>;

// After a signal. `loading`: what start() still does, if it does; no further model is loaded, and one that
// takes too long for it is given up.
int drain_and_stop(const ServeOptions& options, Core& core, FrontEnds& ports, bool json, Loading* loading) {
  const int signal = interrupt_signal();
  log_info("signal ", signal, loading ? " while models load" : "", ": draining for at most ",
           duration_text(options.exit_timeout_s));
  core.set_draining();
  core.repository().refuse_loads();
  ports.drain(options.exit_timeout_s);
  const Stopwatch watch;
  while (!ports.drained() && watch.seconds() < options.exit_timeout_s)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  {
    const LastResort last_resort(
        std::chrono::duration<double>(std::max(0.0, options.exit_timeout_s - watch.seconds())), 128 + signal);
    if (loading) loading->wait();
    core.stop();
    ports.stop();
  }
  if (json) std::printf("{\"event\":\"stopped\",\"signal\":%d,\"final\":true}\n", signal);
  return 128 + signal;
}

constexpr auto kLook = std::chrono::milliseconds(100);  // how often the flag of a signal is looked at

}  // namespace

int run_server(const ServeOptions& options, const BackendTable& backends, bool json) {
  install_interrupt_handlers();
  // The allocator's own limit follows the largest block that was freed, so that models would come to lie in
  // the heaps of the threads that load them and leave holes there. With one that stays, they go when they are
  // freed.
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
  // That also ends the following of the other limit, above which the end of a heap goes back to the system:
  // the pieces of one large message would be new pages for the next.
  ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of its write, not the end
  if (options.log_chosen) set_log_level(options.core.log.level());
  start_log_writer(options.core.log_file);
  struct LastLines {
    ~LastLines() { stop_log_writer(); }
  } last_lines;  // after everything below has said what it has to say
  CoreOptions core_options = options.core;
  std::unique_ptr<OtlpExporter> exporter;  // outlives the core, whose traces it takes
  if (core_options.trace.opentelemetry) {
    exporter = std::make_unique<OtlpExporter>(options.trace_url, options.trace_resource);
    core_options.span_sink = [&e = *exporter](std::string span) { e.add(std::move(span)); };
  }
  Core core(std::move(core_options), backends);
  // Ports first: health answers "not ready" while models load, and a port that is taken fails at once.
  FrontEnds ports = open_ports(options, core);
  // Models load in a thread of their own: a signal is heard meanwhile.
  auto loading = std::async(std::launch::async, [&] { return core.start(); });
  while (!interrupted() && loading.wait_for(kLook) != std::future_status::ready) continue;
  if (interrupted()) return drain_and_stop(options, core, ports, json, &loading);
  const auto errors = loading.get();  // each is in the log
  if (!errors.empty() && options.exit_on_error) {
    core.stop();
    ports.stop();
    fail(ErrorCode::bad_format,
         cat(errors.size(), " of the models failed to load, the first: ", errors.begin()->second),
         errors.begin()->first, "mend the model, or start with --exit-on-error=false");
  }
  if (ports.grpc) ports.grpc->set_serving(core.ready());
  print_ready(ports, json);
  // The signal handler only sets a flag; ten looks a second cost next to nothing.
  while (!interrupted()) std::this_thread::sleep_for(kLook);
  return drain_and_stop(options, core, ports, json, nullptr);
}

}  // namespace pelton::serve
