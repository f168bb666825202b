// SPDX-License-Identifier: Apache-2.0
#include "serve/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/log.h"
#include "serve/config_file.h"

namespace pelton::serve {
namespace {

// In the form that the command line parser reports.
[[noreturn]] void refuse(std::string what) {
  throw CLI::ValidationError(std::move(what));
}

// A number that lies between the two, whatever type it is read into: a negative one is none of an unsigned
// type, and what is no number lies nowhere.
CLI::Validator between(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& text) -> std::string {
        double v = 0;
        const auto r = std::from_chars(text.data(), text.data() + text.size(), v);
        if (r.ec == std::errc() && r.ptr == text.data() + text.size() && v >= least && v <= most) return "";
        return cat("'", text, "' is not a number between ", least, " and ", most);
      },
      "");
}
// Options that are true or false say so of what is neither, the next flag for one.
void check_booleans(CLI::App& app) {
  for (CLI::Option* o : app.get_options()) {
    if (o->get_type_name() != "BOOLEAN") continue;
    o->check(CLI::Validator(
        [](const std::string& text) -> std::string {
          try {
            CLI::detail::to_flag_value(text);
            return "";
          } catch (const std::invalid_argument&) {
            return cat("takes true or false, not '", text, "'");
          }
        },
        ""));
  }
}

constexpr double kMaxSeconds = 1e6, kMaxBytes = 1e18, kMaxThreads = 1024;

struct Refused {
  const char *flag, *fix;
};
constexpr Refused kRefused[] = {
    {"--model-namespacing", "give models distinct names"},
    {"--model-config-name", "keep one config.pbtxt in each model's folder"},
    {"--model-load-retry-count", "load again over the network"},
    {"--model-load-gpu-limit", "set --memory-budget at compile time"},
    {"--backend-directory", "name a library with an engine by --engine NAME=FILE"},
    {"--backend-config", "set parameters in the model's config.pbtxt"},
    {"--repoagent-directory", "check the repository before it is served"},
    {"--cache-directory", "cache in front of the server"},
    {"--host-policy", "bind the process with taskset or a cpuset"},
    {"--allow-sagemaker", "use the /v2 paths"},
    {"--sagemaker-port", "use the /v2 paths"},
    {"--allow-vertex-ai", "use the /v2 paths"},
    {"--vertex-ai-port", "use the /v2 paths"},
    {"--sagemaker-safe-port-range", "use the /v2 paths"},
    {"--sagemaker-thread-count", "use the /v2 paths"},
    {"--vertex-ai-thread-count", "use the /v2 paths"},
    {"--vertex-ai-default-model", "use the /v2 paths"},
    {"--trace-file", "use --trace-config triton,file=PATH"},
    {"--trace-level", "use --trace-config level=TIMESTAMPS"},
    {"--trace-rate", "use --trace-config rate=N"},
    {"--trace-count", "use --trace-config count=N"},
    {"--trace-log-frequency", "use --trace-config triton,log-frequency=N"},
    {"--buffer-manager-thread-count",
     "tensors are joined by the threads of instances: give the model more of them"},
    {"--pinned-memory-pool-byte-size", "each plan has the pinned memory that its transfers need"},
    {"--cuda-memory-pool-byte-size",
     "each plan has the memory that it needs: bound it with compile --memory-budget"},
    {"--cuda-virtual-address-size", "states of sequences are kept in the memory of the host"},
    {"--grpc-infer-thread-count",
     "gRPC starts as many threads as it has processors: bound them with taskset"},
    {"--grpc-infer-allocation-pool-size", "bound the memory of requests with --max-inflight-bytes"},
    {"--grpc-max-response-pool-size", "responses that wait for their client count in --max-inflight-bytes"},
    {"--strict-model-config", "use --disable-auto-complete-config"},
};

// Settings of gRPC's connections.
struct ChannelFlag {
  const char *flag, *argument, *help;
};
constexpr ChannelFlag kChannelFlags[] = {
    {"--grpc-keepalive-time", "grpc.keepalive_time_ms", "Milliseconds of silence before a ping"},
    {"--grpc-keepalive-timeout", "grpc.keepalive_timeout_ms", "Milliseconds that a ping's answer may take"},
    {"--grpc-keepalive-permit-without-calls", "grpc.keepalive_permit_without_calls",
     "1: ping without calls under way, too"},
    {"--grpc-http2-max-pings-without-data", "grpc.http2.max_pings_without_data",
     "Pings in a row without data; 0: any number"},
    {"--grpc-http2-min-recv-ping-interval-without-data", "grpc.http2.min_ping_interval_without_data_ms",
     "Milliseconds between pings of a client without data, else they are bad"},
    {"--grpc-http2-max-ping-strikes", "grpc.http2.max_ping_strikes", "Bad pings until a client is cut off"},
    {"--grpc-max-connection-age", "grpc.max_connection_age_ms", "Milliseconds a connection may last"},
    {"--grpc-max-connection-age-grace", "grpc.max_connection_age_grace_ms",
     "Milliseconds for its calls after that"},
};

void add_grpc(CLI::App& app, GrpcTuning& tuning) {
  CLI::Transformer words({{"true", "1"}, {"false", "0"}});
  words.description("");
  for (const ChannelFlag& f : kChannelFlags)
    app.add_option_function<int>(
           f.flag, [&tuning, f](int v) { tuning.arguments[f.argument] = v; }, f.help)
        ->check(CLI::NonNegativeNumber)
        ->transform(words);
  app.add_option_function<std::string>(
      "--grpc-infer-response-compression-level",
      [&tuning](const std::string& v) {
        constexpr std::string_view kLevels[] = {"none", "low", "medium", "high"};
        const auto at = std::find(std::begin(kLevels), std::end(kLevels), v);
        if (at == std::end(kLevels))
          refuse(cat("--grpc-infer-response-compression-level is none, low, medium or high, not '", v, "'"));
        tuning.compression = static_cast<int>(at - std::begin(kLevels));
      },
      "none, low, medium or high: compression of answers");
}

void add_logging(CLI::App& app, ServeOptions& o) {
  app.add_option("--log-file", o.core.log_file, "Log to this file instead of standard error");
  auto add = [&](const char* flag, bool& on, const char* help) {
    app.add_option_function<bool>(
        flag, [&o, &on](bool v) { on = v, o.log_chosen = true; }, help);
  };
  add("--log-info", o.core.log.info, "Log each model that is loaded or unloaded");
  add("--log-warning", o.core.log.warning, "Log warnings; on unless told otherwise");
  add("--log-error", o.core.log.error, "Log errors; on unless told otherwise");
  app.add_option_function<unsigned>(
      "--log-verbose", [&o](unsigned v) { o.core.log.verbose = v, o.log_chosen = true; },
      "Above 0: log details");
  app.add_option_function<std::string>(
         "--log-format",
         [](const std::string& v) {
           if (v != "ISO8601")
             refuse(cat("--log-format is ISO8601, not '", v, "': there is no other format"));
         },
         "ISO8601: the format of times in --log-file")
      ->group("");
}

ControlMode control_mode(const std::string& text) {
  if (text == "none") return ControlMode::none;
  if (text == "explicit") return ControlMode::explicit_control;
  if (text == "poll") return ControlMode::poll;
  refuse(cat("--model-control-mode is none, explicit or poll, not '", text, "'"));
}

void add_port(CLI::App& app, const std::string& name, PortOptions& port, bool threads) {
  app.add_option("--allow-" + name, port.on, "Serve " + name)->capture_default_str();
  app.add_option("--" + name + "-address", port.address, "Address to listen on")->capture_default_str();
  app.add_option("--" + name + "-port", port.port, "Port; 0 picks a free one and prints it")
      ->capture_default_str()
      ->check(between(0, 65535));
  if (name != "metrics")
    app.add_option("--reuse-" + name + "-port", port.reuse, "Let another server share the port");
  if (threads)
    app.add_option("--" + name + "-thread-count", port.threads,
                   "Threads that serve connections; 0: by the CPUs")
        ->check(between(0, kMaxThreads));
}

// Errors that a flag's value causes, in the form that the command line parser reports.
template <class F>
void as_usage(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    refuse(e.what());
  }
}

uint64_t parse_number(const std::string& text, std::string_view flag) {
  uint64_t v = 0;
  auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size() || v > static_cast<uint64_t>(kMaxBytes))
    refuse(cat(flag, ": '", text, "' is not a number between 0 and ", kMaxBytes));
  return v;
}

void add_services(CLI::App& app, CoreOptions& o) {
  app.add_option_function<std::string>(
      "--cache-config",
      [&o](const std::string& v) {
        if (!v.starts_with("local,size="))
          refuse(cat("--cache-config is local,size=BYTES, not '", v, "': there is no other cache"));
        o.cache_bytes = parse_number(v.substr(11), "--cache-config");
      },
      "local,size=BYTES: response cache of models that enable it");
  app.add_option("--response-cache-byte-size", o.cache_bytes, "The same in its older form")
      ->check(between(0, kMaxBytes));
  app.add_option_function<std::string>(
      "--rate-limit",
      [&o](const std::string& v) {
        if (v != "off" && v != "execution_count")
          refuse(cat("--rate-limit is off or execution_count, not '", v, "'"));
        o.rate_limits = v == "execution_count";
      },
      "off or execution_count: honour rate_limiter of instance groups");
  app.add_option_function<std::vector<std::string>>(
      "--rate-limit-resource",
      [&o](const std::vector<std::string>& list) {
        for (const std::string& v : list) {
          const size_t colon = v.find(':');
          if (colon == v.npos || colon == 0)
            refuse(cat("--rate-limit-resource is NAME:COUNT, not '", v, "'"));
          if (v.find(':', colon + 1) != v.npos)
            refuse(cat("--rate-limit-resource '", v, "' names a device: resources are those of the server"));
          o.rate_resources[v.substr(0, colon)] = parse_number(v.substr(colon + 1), "--rate-limit-resource");
        }
      },
      "NAME:COUNT of a resource that instances share");
}

// KEY=VALUE of the metrics.
void metrics_config(MetricsOptions& o, bool& summaries, const std::string& text) {
  const size_t equal = text.find('=');
  const std::string key = text.substr(0, equal), value = equal == text.npos ? "" : text.substr(equal + 1);
  auto flag = [&] {
    if (value != "true" && value != "false")
      refuse(cat("--metrics-config: ", key, " is true or false, not '", value, "'"));
    return value == "true";
  };
  if (key == "summary_latencies") {
    summaries = flag();
  } else if (key == "counter_latencies") {
    o.counters = flag();
  } else if (key == "histogram_latencies") {
    flag();                                 // always on
  } else if (key == "summary_quantiles") {  // QUANTILE:ERROR,...; ours are exact
    o.quantiles.clear();
    for (size_t at = 0; at <= value.size();) {
      const size_t comma = std::min(value.find(',', at), value.size());
      const std::string item = value.substr(at, comma - at);
      char* end = nullptr;
      const double q = std::strtod(item.c_str(), &end);
      if (end == item.c_str() || (*end != ':' && *end != 0) || !(q > 0 && q < 1))
        refuse(cat("--metrics-config: '", item, "' of summary_quantiles is not QUANTILE:ERROR"));
      o.quantiles.push_back(q);
      at = comma + 1;
    }
  } else {
    refuse(cat("--metrics-config: setting '", key, "' is not supported"));
  }
}

// KEY=VALUE, or MODE,KEY=VALUE for a setting of one mode.
void trace_config(ServeOptions& o, const std::string& text) {
  TraceSettings& t = o.core.trace;
  const size_t equal = text.find('=');
  if (equal == text.npos) refuse(cat("--trace-config is [MODE,]KEY=VALUE, not '", text, "'"));
  std::string key = text.substr(0, equal), value = text.substr(equal + 1);
  const size_t comma = key.find(',');
  const std::string mode = comma == key.npos ? "" : key.substr(0, comma);
  if (comma != key.npos) key = key.substr(comma + 1);
  if (!mode.empty() && mode != "triton" && mode != "opentelemetry")
    refuse(cat("--trace-config: mode '", mode, "' is neither triton nor opentelemetry"));
  if (key == "level") {
    if (value != "OFF" && value != "TIMESTAMPS")
      refuse(cat("--trace-config: level '", value, "' is neither OFF nor TIMESTAMPS"));
    t.on = value == "TIMESTAMPS";
  } else if (key == "rate") {
    t.rate = std::max<uint64_t>(1, parse_number(value, "--trace-config rate"));
  } else if (key == "count") {
    t.count = value == "-1" ? -1 : static_cast<int64_t>(parse_number(value, "--trace-config count"));
  } else if (key == "mode") {
    if (value != "triton" && value != "opentelemetry")
      refuse(cat("--trace-config: mode '", value, "' is neither triton nor opentelemetry"));
    t.opentelemetry = value == "opentelemetry";
  } else if (key == "file" && mode != "opentelemetry") {
    t.file = value;
  } else if (key == "log-frequency" && mode != "opentelemetry") {
    t.log_frequency = parse_number(value, "--trace-config log-frequency");
  } else if (key == "url" && mode == "opentelemetry") {
    o.trace_url = value;
  } else if (key == "resource" && mode == "opentelemetry") {
    const size_t eq = value.find('=');
    if (eq == value.npos) refuse(cat("--trace-config: resource '", value, "' is not KEY=VALUE"));
    o.trace_resource[value.substr(0, eq)] = value.substr(eq + 1);
  } else {
    refuse(cat("--trace-config: setting '", key, "' is not supported"));
  }
}

void add_engines(CLI::App& app, ServeOptions& o) {
  app.add_option("--python-executable", o.python, "Python with NumPy that runs models of backend python")
      ->capture_default_str();
  app.add_option("--onnxruntime-library", o.onnxruntime,
                 "libonnxruntime.so that runs models of backend onnxruntime in place of Pelton");
  app.add_option_function<std::vector<std::string>>(
      "--engine",
      [&o](const std::vector<std::string>& list) {
        for (const std::string& v : list) {
          const size_t eq = v.find('=');
          if (eq == v.npos || eq == 0) refuse(cat("--engine is NAME=FILE, not '", v, "'"));
          o.engines.emplace_back(v.substr(0, eq), v.substr(eq + 1));
        }
      },
      "NAME=FILE: shared library with an engine, for models of backend NAME");
}

void add_gpus(CLI::App& app, ServeOptions& o) {
  app.add_option_function<std::string>(
      "--min-supported-compute-capability",
      [&o](const std::string& v) {
        const char* const end = v.data() + v.size();
        int major = 0, minor = 0;
        auto r = std::from_chars(v.data(), end, major);
        if (r.ec == std::errc() && r.ptr + 1 < end && *r.ptr == '.')
          r = std::from_chars(r.ptr + 1, end, minor);
        if (r.ec != std::errc() || r.ptr != end || major < 0 || major > 99 || minor < 0 || minor > 9)
          refuse(cat("--min-supported-compute-capability is MAJOR.MINOR, not '", v, "'"));
        o.min_sm = major * 10 + minor;
      },
      "MAJOR.MINOR: GPUs below it are not used");
  app.add_option_function<bool>(
         "--enable-peer-access",
         [](bool v) {
           if (v)
             refuse(
                 "flag --enable-peer-access is not supported with true: tensors go from GPU to GPU through "
                 "the host");
         },
         "")
      ->group("");
}

void add_security(CLI::App& app, const std::string& name, PortOptions& port) {
  const std::string p = "--" + name + "-";
  app.add_option_function<std::vector<std::string>>(
      p + (name == "http" ? "restricted-api" : "restricted-protocol"),
      [&port](const std::vector<std::string>& rules) {
        for (const std::string& r : rules) as_usage([&] { port.access.restrict(r); });
      },
      "GROUP[,GROUP]:HEADER=file:PATH or =env:NAME: endpoints that want a key in a header");
  app.add_option_function<std::string>(
      p + "header-forward-pattern",
      [&port](const std::string& v) { as_usage([&] { port.forward = HeaderPattern(v); }); },
      "Headers that become parameters of inference requests");
  app.add_option(p + "use-ssl", port.tls.on, "Serve over TLS");
  app.add_option(p + "use-ssl-mutual", port.tls.mutual, "Clients need a certificate, too");
  app.add_option(p + "server-cert", port.tls.cert, "PEM file of the certificate chain");
  app.add_option(p + "server-key", port.tls.key, "PEM file of the key, or env:NAME");
  app.add_option(p + "root-cert", port.tls.root, "PEM file of the clients' authority");
}

}  // namespace

void add_serve_flags(CLI::App& app, ServeOptions& o) {
  RepositoryOptions& r = o.core.repository;
  add_config_file(app);
  app.add_option("--model-repository,--model-store", r.paths, "Folder of models; may be given again")
      ->required();
  app.add_option_function<std::string>(
      "--model-control-mode", [&r](const std::string& v) { r.mode = control_mode(v); },
      "none, explicit or poll");
  app.add_option("--repository-poll-secs", r.poll_seconds, "Seconds between two looks in mode poll")
      ->capture_default_str()
      ->check(between(0.001, kMaxSeconds));
  app.add_option("--load-model", r.load_models, "Model to load at start in mode explicit; * for all");
  app.add_option("--model-load-thread-count", r.load_threads, "Models loaded at the same time")
      ->capture_default_str()
      ->check(between(1, kMaxThreads));
  app.add_flag(
      "--disable-auto-complete-config", [&r](int64_t n) { r.complete_configs = n == 0; },
      "Refuse models without a full config.pbtxt");
  app.add_flag("--allow-model-upload", r.allow_upload, "Load requests may bring model files");
  app.add_flag("--mmap-models", o.map_models,
               "Map plan files instead of copying them; nobody may write to them then");
  app.add_option("--allow-client-shm", o.core.allow_client_shm,
                 "Clients may register system and CUDA shared memory")
      ->capture_default_str();
  app.add_option("--exit-on-error", o.exit_on_error, "End if a model fails to load at start")
      ->capture_default_str();
  app.add_option("--strict-readiness", o.core.strict_readiness, "Ready only when every model is")
      ->capture_default_str();
  app.add_option("--exit-timeout-secs", o.exit_timeout_s, "How long a stop waits for requests under way")
      ->capture_default_str()
      ->check(between(0, kMaxSeconds));
  add_port(app, "http", o.http, true);
  add_port(app, "grpc", o.grpc, false);
  add_port(app, "metrics", o.metrics, false);
  app.add_option("--allow-gpu-metrics", o.core.metrics.gpu, "Metrics of the machine's GPUs");
  app.add_option("--allow-cpu-metrics", o.core.metrics.cpu, "Metrics of the machine's processors and memory");
  app.add_option_function<unsigned>(
      "--metrics-interval-ms", [&o](unsigned v) { o.core.metrics.interval = std::chrono::milliseconds(v); },
      "Milliseconds that a reading of the machine's state stands for; 0: read at every scrape");
  add_gpus(app, o);
  app.add_option_function<std::vector<std::string>>(
      "--metrics-config",
      [&o](const std::vector<std::string>& list) {
        MetricsOptions& m = o.core.metrics;
        bool summaries = false;
        m.quantiles = {0.5, 0.9, 0.95, 0.99, 0.999};
        for (const std::string& v : list) metrics_config(m, summaries, v);
        if (!summaries) m.quantiles.clear();
      },
      "KEY=VALUE: summary_latencies, summary_quantiles, counter_latencies, histogram_latencies");
  add_services(app, o.core);
  add_engines(app, o);
  app.add_option_function<std::vector<std::string>>(
      "--trace-config",
      [&o](const std::vector<std::string>& list) {
        for (const std::string& v : list) trace_config(o, v);
      },
      "[MODE,]KEY=VALUE of request traces: level, rate, count, mode; triton: file, log-frequency; "
      "opentelemetry: url, "
      "resource");
  add_logging(app, o);
  add_grpc(app, o.grpc_tuning);
  app.add_option("--id", o.core.server_name, "Name of this server in its metadata")->capture_default_str();
  add_security(app, "http", o.http);
  add_security(app, "grpc", o.grpc);
  app.add_option("--http-max-input-size", o.max_body_bytes,
                 "Largest request body in bytes, after decompression")
      ->capture_default_str();
  app.add_option("--http-allowed-host", o.allowed_hosts,
                 "Further Host name that requests may use on loopback");
  app.add_option("--http-allowed-origin", o.allowed_origins, "Origin whose browser pages may send requests");
  app.add_option("--max-connections", o.max_connections,
                 "Connections at one time, each over HTTP, gRPC and of metrics")
      ->capture_default_str()
      ->check(between(1, 1e6));
  app.add_option("--header-timeout-secs", o.header_timeout_s,
                 "How long a client may take to send its headers")
      ->capture_default_str()
      ->check(between(0.001, kMaxSeconds));
  app.add_option("--max-queue-size", r.limits.queue, "Waiting requests of one model")
      ->capture_default_str()
      ->check(between(1, 1e9));
  app.add_option("--max-inflight-bytes", o.core.inflight_bytes,
                 "Bytes held at one time: of requests, and as many of answers")
      ->capture_default_str()
      ->check(between(1, kMaxBytes));
  for (const Refused& f : kRefused)
    app.add_option_function<std::string>(
           f.flag, [f](const std::string&) { refuse(cat("flag ", f.flag, " is not supported: ", f.fix)); })
        ->expected(0, 1)
        ->group("");
  check_booleans(app);
  name_environment(app);
}

void check_serve_options(ServeOptions& o) {
  for (auto* port : {&o.http, &o.grpc}) port->tls.on = port->tls.on || port->tls.mutual;
  if (!o.http.on && !o.grpc.on)
    fail(ErrorCode::usage, "neither HTTP nor gRPC is allowed, so nothing could be served");
  if (!o.core.repository.load_models.empty() && o.core.repository.mode != ControlMode::explicit_control)
    fail(ErrorCode::usage, "--load-model needs --model-control-mode=explicit");
  if (o.max_body_bytes == 0 || o.max_body_bytes > (uint64_t{1} << 31) - 1)
    fail(ErrorCode::usage,
         cat("--http-max-input-size is ", o.max_body_bytes, ", it must lie between 1 and 2147483647"));
}

}  // namespace pelton::serve
