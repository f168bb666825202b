// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <mutex>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "serve/loadtest/client.h"

namespace pelton::serve {
namespace {

struct Endpoint {
  bool grpc = false;
  std::string host;
  uint16_t port = 0;
};

Endpoint parse_url(std::string url) {
  Endpoint e;
  if (url.starts_with("grpc://"))
    e.grpc = true, url = url.substr(7);
  else if (url.starts_with("http://"))
    url = url.substr(7);
  else if (url.find("://") != url.npos)
    fail(ErrorCode::usage, cat("'", url, "' is neither http:// nor grpc://"));
  while (!url.empty() && url.back() == '/') url.pop_back();
  const size_t colon = url.rfind(':');
  e.host = url.substr(0, colon);
  if (e.host.size() > 2 && e.host.front() == '[') e.host = e.host.substr(1, e.host.size() - 2);
  e.port = e.grpc ? 8001 : 8000;
  if (colon != url.npos) {
    auto r = std::from_chars(url.data() + colon + 1, url.data() + url.size(), e.port);
    if (r.ec != std::errc() || r.ptr != url.data() + url.size())
      fail(ErrorCode::usage, cat("'", url, "' has no usable port"));
  }
  return e;
}

std::unique_ptr<LoadClient> connect(const Endpoint& e) {
  return e.grpc ? make_grpc_client(e.host, e.port) : make_http_client(e.host, e.port);
}

std::vector<TensorValue> make_inputs(const LoadOptions& o, const TargetModel& model) {
  std::vector<TensorValue> inputs;
  std::mt19937_64 random(o.seed);
  for (const InputSpec& spec : model.inputs) {
    TensorValue t{spec.name, spec.dtype, spec.dims, {}};
    const size_t lead = model.batches ? 1 : 0;
    if (auto given = o.shapes.find(spec.name); given != o.shapes.end()) {
      t.dims.resize(lead);
      t.dims.insert(t.dims.end(), given->second.begin(), given->second.end());
    }
    if (lead) t.dims[0] = o.batch;
    for (int64_t d : t.dims)
      if (d < 0)
        fail(ErrorCode::usage, cat("input '", spec.name, "' has the open shape ", spec.dims), "",
             cat("give it with --shape ", spec.name, "=1x3"));
    const auto count = checked_count(t.dims);
    if (!count || *count > (int64_t{1} << 31))
      fail(ErrorCode::limit, cat("input '", spec.name, "' of shape ", t.dims, " is too large"));
    if (auto file = o.files.find(spec.name); file != o.files.end()) {
      t.data = Blob::from(read_file(file->second));
    } else {
      std::string bytes;
      if (spec.dtype == DType::string) {
        for (int64_t i = 0; i < *count; ++i) append_bytes_element(bytes, o.zeros ? "" : cat(random() % 1000));
      } else {
        bytes.resize(static_cast<size_t>(byte_size(spec.dtype, *count)));
        const size_t width = static_cast<size_t>(bits(spec.dtype)) / 8;
        // The top byte stays small, so that every type holds moderate, finite numbers.
        if (!o.zeros)
          for (size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = static_cast<char>(spec.dtype == DType::boolean ? random() & 1
                                         : (i + 1) % width            ? random() & 0xff
                                                                      : random() & 0x3f);
      }
      t.data = Blob::from(std::move(bytes));
    }
    inputs.push_back(std::move(t));
  }
  return inputs;
}

struct Sample {
  int64_t end_ns;
  uint64_t latency_ns;
};

// One level of load: threads that send until told to stop, and the samples they leave.
class Level {
 public:
  Level(const LoadOptions& o, const Endpoint& endpoint, const TargetModel& model,
        const std::vector<TensorValue>& inputs, int threads, double rate)
      : options_(o), rate_(rate), samples_(static_cast<size_t>(threads)) {
    std::vector<std::unique_ptr<LoadClient>> clients;
    for (int i = 0; i < threads; ++i) {
      clients.push_back(connect(endpoint));
      clients.back()->prepare(o, model, inputs);
    }
    if (rate_ > 0) plan_arrivals();
    start_ = Clock::now();
    for (int i = 0; i < threads; ++i)
      threads_.emplace_back(
          [this, i, c = std::shared_ptr<LoadClient>(std::move(clients[static_cast<size_t>(i)]))] {
            work(*c, i);
          });
  }
  ~Level() {
    stop_ = true;
    for (auto& t : threads_)
      if (t.joinable()) t.join();
  }
  void finish() {
    for (auto& t : threads_) t.join();
  }
  int64_t now_ns() const { return (Clock::now() - start_).count(); }

  // What ended in [from, to).
  void collect(int64_t from, int64_t to, LoadResult& r) {
    for (PerThread& p : samples_) {
      std::lock_guard lock(p.mutex);
      for (const Sample& s : p.samples)
        if (s.end_ns >= from && s.end_ns < to) r.latencies_ns.push_back(s.latency_ns);
      for (int64_t at : p.errors) r.errors += at >= from && at < to;
      if (r.first_error.empty()) r.first_error = p.first_error;
    }
    r.requests = r.latencies_ns.size();
    r.seconds = static_cast<double>(to - from) * 1e-9;
    std::sort(r.latencies_ns.begin(), r.latencies_ns.end());
  }
  uint64_t errors() {
    uint64_t n = 0;
    for (PerThread& p : samples_) {
      std::lock_guard lock(p.mutex);
      n += p.errors.size();
    }
    return n;
  }

 private:
  struct PerThread {
    std::mutex mutex;
    std::vector<Sample> samples;
    std::vector<int64_t> errors;
    std::string first_error;
  };

  void plan_arrivals() {
    const double seconds = options_.requests
                               ? static_cast<double>(options_.requests) / rate_ + 1
                               : options_.warm_up_s + options_.window_s * options_.max_windows + 1;
    const double count = std::min(5e7, seconds * rate_ * 1.2 + 100);
    std::mt19937_64 random(options_.seed);
    std::exponential_distribution<double> gap(rate_);
    double t = 0;
    for (double i = 0; i < count; ++i) {
      arrivals_.push_back(static_cast<int64_t>(t * 1e9));
      t += options_.poisson ? gap(random) : 1 / rate_;
    }
  }

  void work(LoadClient& client, int index) {
    PerThread& own = samples_[static_cast<size_t>(index)];
    SequenceMark mark;
    for (int in_sequence = 0; !stop_;) {
      const uint64_t number = next_.fetch_add(1);
      if (options_.requests && number >= options_.requests) return;
      int64_t begin = now_ns();
      if (rate_ > 0) {
        if (number >= arrivals_.size()) return;
        // The latency counts from when the request should have gone, so a stalled server cannot hide its
        // stall.
        begin = arrivals_[number];
        while (!stop_ && now_ns() < begin)
          std::this_thread::sleep_for(
              std::chrono::nanoseconds(std::min<int64_t>(begin - now_ns(), 50'000'000)));
        if (stop_) return;
      }
      if (options_.sequence_length > 0) {
        if (in_sequence == 0) mark.id = options_.seed * 1'000'000'000 + next_sequence_.fetch_add(1) + 1;
        mark.start = in_sequence == 0;
        mark.end = in_sequence + 1 == options_.sequence_length;
        in_sequence = mark.end ? 0 : in_sequence + 1;
      }
      std::string error;
      try {
        error = client.infer(mark);
      } catch (const std::exception& e) {
        error = e.what();
      }
      const int64_t end = now_ns();
      std::lock_guard lock(own.mutex);
      if (error.empty()) {
        own.samples.push_back({end, static_cast<uint64_t>(end - begin)});
      } else {
        own.errors.push_back(end);
        if (own.first_error.empty()) own.first_error = error;
      }
    }
  }

  const LoadOptions& options_;
  const double rate_;
  std::vector<int64_t> arrivals_;
  std::vector<PerThread> samples_;
  std::vector<std::thread> threads_;
  Clock::time_point start_;
  std::atomic<uint64_t> next_{0}, next_sequence_{0};
  std::atomic<bool> stop_{false};
};

bool close_together(const std::vector<double>& values, double share) {
  double mean = 0;
  for (double v : values) mean += v / static_cast<double>(values.size());
  return mean > 0 && std::all_of(values.begin(), values.end(),
                                 [&](double v) { return std::fabs(v - mean) <= share * mean; });
}

LoadResult measure(const LoadOptions& o, const Endpoint& endpoint, const TargetModel& model,
                   const std::vector<TensorValue>& inputs, int threads, double rate) {
  Level level(o, endpoint, model, inputs, threads, rate);
  LoadResult result;
  if (o.requests) {
    level.finish();
    const int64_t end = level.now_ns();
    level.collect(0, end + 1, result);
    result.stable = true;
  } else {
    auto sleep_until = [&](int64_t t) {
      while (level.now_ns() < t) {
        throw_if_interrupted();
        std::this_thread::sleep_for(
            std::chrono::nanoseconds(std::min<int64_t>(t - level.now_ns(), 100'000'000)));
      }
    };
    const auto window = static_cast<int64_t>(o.window_s * 1e9),
               begin = static_cast<int64_t>(o.warm_up_s * 1e9);
    sleep_until(begin);
    std::vector<double> throughput, latency;
    for (int w = 0; w < o.max_windows && !result.stable; ++w) {
      sleep_until(begin + (w + 1) * window);
      LoadResult one;
      level.collect(begin + w * window, begin + (w + 1) * window, one);
      throughput.push_back(one.throughput());
      double sum = 0;
      for (uint64_t l : one.latencies_ns) sum += static_cast<double>(l);
      latency.push_back(one.requests ? sum / static_cast<double>(one.requests) : 0);
      const auto n = static_cast<size_t>(o.windows);
      if (throughput.size() < n) continue;
      const auto tail = [n](const std::vector<double>& v) {
        return std::vector<double>(v.end() - static_cast<std::ptrdiff_t>(n), v.end());
      };
      result.stable =
          close_together(tail(throughput), o.stability) && close_together(tail(latency), o.stability);
    }
    const auto measured =
        static_cast<int64_t>(std::min<size_t>(throughput.size(), static_cast<size_t>(o.windows)));
    const auto last = begin + static_cast<int64_t>(throughput.size()) * window;
    level.collect(last - measured * window, last, result);
    if (!result.stable) log_warn("the measurement was not stable within ", o.max_windows, " windows");
  }
  result.concurrency = threads;
  result.rate = rate;
  result.poisson = rate > 0 && o.poisson;
  return result;
}

}  // namespace

std::vector<LoadResult> run_loadtest(const LoadOptions& o) {
  if (o.model.empty()) fail(ErrorCode::usage, "no model is named", "", "name it with --model");
  if (o.window_s <= 0 || o.windows < 1 || o.max_windows < o.windows)
    fail(ErrorCode::usage, "windows must be positive, and --max-windows at least --windows");
  if (o.shared_memory && o.json_data)
    fail(ErrorCode::usage, "--json-tensors and --shared-memory exclude each other");
  const Endpoint endpoint = parse_url(o.url);
  const TargetModel model = connect(endpoint)->describe(o);
  const std::vector<TensorValue> inputs = make_inputs(o, model);
  std::vector<LoadResult> results;
  if (o.rates.empty())
    for (int c : o.concurrency) results.push_back(measure(o, endpoint, model, inputs, c, 0));
  else
    for (double rate : o.rates) results.push_back(measure(o, endpoint, model, inputs, o.max_threads, rate));
  return results;
}

}  // namespace pelton::serve
