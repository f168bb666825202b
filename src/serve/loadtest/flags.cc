// SPDX-License-Identifier: Apache-2.0
#include "serve/loadtest/flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace pelton::serve {
namespace {

// In the form that the command line parser reports.
[[noreturn]] void refuse(std::string what) {
  throw CLI::ValidationError(std::move(what));
}

template <class T>
T number(std::string_view text, std::string_view flag) {
  T v{};
  auto r = std::from_chars(text.data(), text.data() + text.size(), v);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size() || !(v > 0))
    refuse(cat(flag, ": '", text, "' is not a positive number"));
  return v;
}

// "4", "1,2,8" or "begin:end[:step]"
template <class T>
std::vector<T> sweep(const std::string& text, std::string_view flag, T most) {
  std::vector<T> out;
  std::vector<std::string> parts;
  const char separator = text.find(':') != text.npos ? ':' : ',';
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  if (separator == ',') {
    for (const auto& p : parts) out.push_back(number<T>(p, flag));
    return out;
  }
  if (parts.size() < 2 || parts.size() > 3)
    refuse(cat(flag, " wants begin:end or begin:end:step, not '", text, "'"));
  const T begin = number<T>(parts[0], flag), end = number<T>(parts[1], flag),
          step = parts.size() == 3 ? number<T>(parts[2], flag) : T{1};
  if (!(begin <= end && end <= most && step <= most))
    refuse(cat(flag, " wants begin <= end <= ", most, ", not '", text, "'"));
  const double levels = std::floor(static_cast<double>(end - begin) / static_cast<double>(step) + 1e-9) + 1;
  if (levels > kMaxLevels) refuse(cat(flag, " '", text, "' has more than ", kMaxLevels, " levels"));
  for (int i = 0; i < static_cast<int>(levels); ++i) out.push_back(begin + static_cast<T>(i) * step);
  return out;
}

std::pair<std::string, std::string> named(const std::string& text, std::string_view flag) {
  const size_t eq = text.find('=');
  if (eq == text.npos || eq == 0) refuse(cat(flag, " wants NAME=VALUE, not '", text, "'"));
  return {text.substr(0, eq), text.substr(eq + 1)};
}

Dims dims_of(const std::string& text) {
  Dims out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('x', at), text.size());
    out.push_back(number<int64_t>(text.substr(at, end - at), "--shape"));
    at = end + 1;
  }
  return out;
}

}  // namespace

void add_loadtest_flags(CLI::App& app, LoadOptions& o) {
  app.add_option("url", o.url, "http://host:port or grpc://host:port; an IPv6 address in brackets")
      ->required();
  app.add_option("-m,--model", o.model, "Model")->required();
  app.add_option("--model-version", o.version, "Version; the newest if absent");
  auto* const concurrency = app.add_option_function<std::string>(
      "--concurrency",
      [&o](const std::string& v) { o.concurrency = sweep<int>(v, "--concurrency", kMaxThreads); },
      "Requests in flight: 4, 1,2,8 or begin:end:step");
  auto* const rate = app.add_option_function<std::string>(
      "--rate", [&o](const std::string& v) { o.rates = sweep<double>(v, "--rate", kMaxRate); },
      "Requests a second instead, in the same forms");
  rate->excludes(concurrency);
  app.add_flag("--poisson", o.poisson, "With --rate: random gaps")->needs(rate);
  app.add_option("--max-threads", o.max_threads, "With --rate: requests in flight at most")
      ->capture_default_str()
      ->needs(rate);
  CLI::Option* const windows[] = {
      app.add_option("--window", o.window_s, "Seconds of one window"),
      app.add_option("--warm-up", o.warm_up_s, "Seconds before the first window"),
      app.add_option("--windows", o.windows, "Windows that must agree"),
      app.add_option("--max-windows", o.max_windows, "Windows before giving up on stability"),
      app.add_option("--stability", o.stability, "Share of the mean by which windows may differ")};
  auto* const requests = app.add_option("--requests", o.requests, "Send exactly so many requests instead")
                             ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  for (CLI::Option* w : windows) w->capture_default_str()->excludes(requests);
  app.add_option("--timeout", o.timeout_s, "Seconds without an answer after which a request has failed")
      ->capture_default_str();
  app.add_option("-b,--batch", o.batch, "Rows of a request, for models that batch")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  app.add_option_function<std::vector<std::string>>(
      "--shape",
      [&o](const std::vector<std::string>& v) {
        for (const auto& s : v) {
          auto [n, d] = named(s, "--shape");
          o.shapes[n] = dims_of(d);
        }
      },
      "NAME=1x3x224 for open dimensions, without the batch");
  app.add_option_function<std::vector<std::string>>(
      "--input",
      [&o](const std::vector<std::string>& v) {
        for (const auto& s : v) o.files.insert(named(s, "--input"));
      },
      "NAME=FILE with the elements of an input as they lie in memory; BYTES: the file is the element, or "
      "each "
      "line is one");
  app.add_flag("--zeros", o.zeros, "Inputs of zeros");
  app.add_flag("--json-tensors", o.json_data, "HTTP: tensors as JSON instead of binary");
  app.add_flag("--streaming", o.streaming, "gRPC: one stream a connection");
  auto* const memory = app.add_option_function<std::string>(
      "--shared-memory",
      [&o](const std::string& v) {
        if (v != "none" && v != "system") refuse(cat("--shared-memory is none or system, not '", v, "'"));
        o.shared_memory = v == "system";
      },
      "none or system: where tensors lie");
  app.add_option("--output-shared-memory-size", o.output_bytes, "Room for each output in shared memory")
      ->capture_default_str()
      ->check(CLI::Range(size_t{1}, size_t{1} << 31))
      ->needs(memory);
  app.add_option("--sequence-length", o.sequence_length, "Send sequences of so many requests");
  app.add_option("--seed", o.seed, "Seed of inputs and gaps")->capture_default_str();
}

}  // namespace pelton::serve
