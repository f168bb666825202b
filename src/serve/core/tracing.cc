// SPDX-License-Identifier: Apache-2.0
#include "serve/core/tracing.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <random>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxWaiting = 100'000;  // traces kept for a file that is written at the end

std::string hex(uint64_t v) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out(16, '0');
  for (size_t i = 16; i-- > 0; v >>= 4) out[i] = kDigits[v & 15];
  return out;
}

uint64_t random_id() {
  static thread_local std::mt19937_64 engine{std::random_device{}()};
  uint64_t v = 0;
  while (v == 0) v = engine();
  return v;
}

bool all_hex(std::string_view s) {
  return s.find_first_not_of("0123456789abcdef") == s.npos && s.find_first_not_of('0') != s.npos;
}

// Traces that go nowhere would be a silent loss.
void check_place(const TraceSettings& s) {
  if (s.on && !s.opentelemetry && s.file.empty())
    fail(ErrorCode::usage, "level TIMESTAMPS traces requests, and no file for the traces is named", "",
         "start the server with --trace-config triton,file=PATH, or mode=opentelemetry");
}

template <class T>
T parse_number(const std::string& key, const std::string& text, T least) {
  T v{};
  auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size() || v < least)
    fail(ErrorCode::bad_format,
         cat("trace setting '", key, "' is '", text, "', expected an integer from ", least));
  return v;
}

}  // namespace

class Tracer::Trace final : public RequestTrace {
 public:
  Tracer& tracer;
  uint64_t id = 0, parent_id = 0;  // of this process; 0: none
  std::string trace_id, span, parent_span;
  bool opentelemetry = false;
  Clock::time_point steady;
  int64_t unix_ns = 0;  // of the same moment

  explicit Trace(Tracer& t) : tracer(t), steady(Clock::now()), unix_ns(unix_time_ns()) {}
  int64_t to_unix(Clock::time_point t) const {
    return unix_ns + std::chrono::nanoseconds(t - steady).count();
  }
  void finish(const Request& request, const Response& response) override {
    tracer.finish(*this, request, response);
  }
};

Tracer::Tracer(TraceSettings settings, SpanSink sink)
    : start_(std::move(settings)), sink_(std::move(sink)), settings_(start_) {
  check_place(start_);
  update_active();
}

void Tracer::update_active() {
  bool any = settings_.on;
  for (const auto& [name, s] : models_) any = any || s.on;
  active_ = any;
}

TraceSettings& Tracer::settings_of(const std::string& model) {
  const auto it = models_.find(model);
  return it == models_.end() ? settings_ : it->second;
}

void Tracer::begin(Request& request) {
  auto trace = std::make_shared<Trace>(*this);
  if (request.parent_trace) {
    const auto& parent = static_cast<const Trace&>(*request.parent_trace);
    trace->parent_id = parent.id;
    trace->trace_id = parent.trace_id;
    trace->parent_span = parent.span;
    trace->opentelemetry = parent.opentelemetry;
  } else {
    std::lock_guard lock(mutex_);
    TraceSettings& s = settings_of(request.model);
    if (!s.on || s.count == 0) return;
    // A caller that traces wants to see us, too; others are sampled.
    const std::string_view w3c = request.traceparent;
    const bool asked = w3c.size() == 55 && w3c.starts_with("00-") && w3c[35] == '-' && w3c[52] == '-' &&
                       all_hex(w3c.substr(3, 32)) && all_hex(w3c.substr(36, 16));
    const bool sampled = asked && std::string_view("13579bdf").find(w3c.back()) != w3c.npos;  // bit 0
    if (!sampled && seen_[request.model]++ % s.rate != 0) return;
    if (s.count > 0) --s.count;
    trace->opentelemetry = s.opentelemetry;
    if (asked) {
      trace->trace_id = w3c.substr(3, 32);
      trace->parent_span = w3c.substr(36, 16);
    } else {
      trace->trace_id = hex(random_id()) + hex(random_id());
    }
  }
  trace->id = ++next_id_;
  trace->span = hex(random_id());
  request.trace = std::move(trace);
}

void Tracer::finish(const Trace& t, const Request& r, const Response& response) {
  const auto end = Clock::now();
  const bool computed = r.compute_start != Clock::time_point();
  if (t.opentelemetry) {
    if (!sink_) return;
    auto span = [&](const std::string& name, const std::string& id, const std::string& parent, int64_t from,
                    int64_t to, int kind) {
      Json j = {{"traceId", t.trace_id}, {"spanId", id}};
      if (!parent.empty()) j["parentSpanId"] = parent;
      j["name"] = name;
      j["kind"] = kind;
      j["startTimeUnixNano"] = cat(from);
      j["endTimeUnixNano"] = cat(std::max(from, to));
      return j;
    };
    Json root =
        span(r.model, t.span, t.parent_span, t.to_unix(r.arrival), t.to_unix(end), t.parent_id ? 1 : 2);
    auto attribute = [&](const char* key, const std::string& value) {
      root["attributes"].push_back({{"key", key}, {"value", {{"stringValue", value}}}});
    };
    attribute("model_name", r.model);
    attribute("model_version", r.version);
    if (!r.id.empty()) attribute("request_id", r.id);
    if (response.error) root["status"] = {{"code", 2}, {"message", response.error->what()}};
    auto send = [&](const Json& j) { sink_(j.dump(-1, ' ', false, Json::error_handler_t::replace)); };
    send(root);
    if (!computed) return;
    const std::pair<const char*, std::pair<Clock::time_point, Clock::time_point>> stages[] = {
        {"queue", {r.enqueued, r.compute_start}},
        {"compute_input", {r.compute_start, r.input_end}},
        {"compute_infer", {r.input_end, r.infer_end}},
        {"compute_output", {r.infer_end, r.compute_end}}};
    for (const auto& [name, times] : stages)
      send(span(name, hex(random_id()), t.span, t.to_unix(times.first), t.to_unix(times.second), 1));
    return;
  }
  Json j = {{"id", t.id}, {"model_name", r.model}, {"model_version", r.version}};
  if (t.parent_id) j["parent_id"] = t.parent_id;
  if (!r.id.empty()) j["request_id"] = r.id;
  j["timestamps"] = Json::array();
  auto stamp = [&](const char* name, Clock::time_point at) {
    j["timestamps"].push_back({{"name", name}, {"ns", t.to_unix(at)}});
  };
  stamp("REQUEST_START", r.arrival);
  if (computed) {
    stamp("QUEUE_START", r.enqueued);
    stamp("COMPUTE_START", r.compute_start);
    stamp("COMPUTE_INPUT_END", r.input_end);
    stamp("COMPUTE_OUTPUT_START", r.infer_end);
    stamp("COMPUTE_END", r.compute_end);
  }
  stamp("REQUEST_END", end);
  std::string text = j.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::lock_guard lock(mutex_);
  if (settings_.file.empty() || waiting_.size() >= kMaxWaiting) return;
  waiting_.push_back(std::move(text));
  const uint64_t frequency = settings_of(r.model).log_frequency;
  if (frequency == 0 || waiting_.size() < frequency) return;
  writer_.post(
      [this, traces = std::exchange(waiting_, {}), path = cat(settings_.file, ".", files_++)]() mutable {
        write_file(std::move(traces), std::move(path));
      });
}

void Tracer::write_file(std::vector<std::string> traces, std::string path) {
  std::string text = "[";
  for (size_t i = 0; i < traces.size(); ++i) text += cat(i ? ",\n" : "", traces[i]);
  try {
    pelton::write_file(path, text + "]\n");
  } catch (const Error& e) {
    log_error("the traces could not be written: ", e.what());
  }
}

void Tracer::flush() {
  std::vector<std::string> traces;
  std::string path;
  {
    std::lock_guard lock(mutex_);
    if (waiting_.empty()) return;
    traces.swap(waiting_);
    path = files_ ? cat(settings_.file, ".", files_++) : settings_.file;
  }
  write_file(std::move(traces), std::move(path));
}

std::string Tracer::settings_json(const std::string& model, std::string_view changes) {
  std::lock_guard lock(mutex_);
  if (!changes.empty()) {
    const auto j = nlohmann::json::parse(changes, nullptr, false);  // not ordered: that takes n^2 steps
    if (!j.is_object()) fail(ErrorCode::bad_format, "trace settings are not a JSON object");
    TraceSettings next = model.empty() ? settings_ : settings_of(model);
    const TraceSettings& standard = model.empty() ? start_ : settings_;
    for (const auto& [key, value] : j.items()) {
      const auto& first = value.is_array() && value.size() == 1 ? value[0] : value;
      const bool clear = value.is_null();
      std::string text;
      if (first.is_string())
        text = first.get<std::string>();
      else if (first.is_number_integer())
        text = first.dump();
      else if (!clear && !value.is_array())
        fail(ErrorCode::bad_format, cat("trace setting '", key, "' is neither a text nor a list"));
      if (key == "trace_level") {
        if (text == "TENSORS" || (value.is_array() && value.size() > 1))
          fail(ErrorCode::unsupported_op, "trace level TENSORS is not supported: traces hold no tensor data");
        if (!clear && !text.empty() && text != "OFF" && text != "TIMESTAMPS")
          fail(ErrorCode::bad_format, cat("trace level '", text, "' is neither OFF nor TIMESTAMPS"));
        next.on = clear ? standard.on : text == "TIMESTAMPS";
      } else if (key == "trace_rate") {
        next.rate = clear ? standard.rate : parse_number<uint64_t>(key, text, 1);
      } else if (key == "trace_count") {
        next.count = clear ? standard.count : parse_number<int64_t>(key, text, -1);
      } else if (key == "log_frequency") {
        next.log_frequency = clear ? standard.log_frequency : parse_number<uint64_t>(key, text, 0);
      } else if (key == "trace_file" || key == "trace_mode") {
        if (!clear)
          fail(ErrorCode::usage, cat("trace setting '", key, "' cannot be changed over the network"), "",
               "set it with --trace-config when the server starts");
      } else {
        fail(ErrorCode::bad_format, cat("unknown trace setting '", key, "'"));
      }
    }
    check_place(next);
    if (model.empty())
      settings_ = next;
    else
      models_[model] = next;
    update_active();
  }
  const TraceSettings& s = model.empty() ? settings_ : settings_of(model);
  return Json{{"trace_level", Json::array({s.on ? "TIMESTAMPS" : "OFF"})},
              {"trace_rate", cat(s.rate)},
              {"trace_count", cat(s.count)},
              {"log_frequency", cat(s.log_frequency)},
              {"trace_file", s.file},
              {"trace_mode", s.opentelemetry ? "opentelemetry" : "triton"}}
      .dump();
}

}  // namespace pelton::serve
