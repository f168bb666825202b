// SPDX-License-Identifier: Apache-2.0
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <optional>
#include <random>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "serve/loadtest/client.h"
#include "serve/loadtest/inputs.h"

namespace pelton::serve {
namespace {

std::unique_ptr<LoadClient> connect(const Endpoint& e, const LoadOptions& o) {
  return e.grpc ? make_grpc_client(e, o.timeout_s) : make_http_client(e, o.timeout_s);
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
      throw_if_interrupted();
      clients.push_back(connect(endpoint, o));
      clients.back()->prepare(o, model, inputs);
    }
    if (rate_ > 0) plan_arrivals();
    start_ = Clock::now();
    try {
      for (int i = 0; i < threads; ++i)
        threads_.emplace_back(
            [this, i, c = std::shared_ptr<LoadClient>(std::move(clients[static_cast<size_t>(i)]))] {
              work(*c, i);
            });
    } catch (const std::system_error& e) {
      stop();
      fail(ErrorCode::limit, cat("the system gives only ", threads_.size(), " threads: ", e.what()));
    }
  }
  ~Level() { stop(); }
  void finish() {
    for (auto& t : threads_) t.join();
    throw_if_interrupted();
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
  void stop() {
    stop_ = true;
    for (auto& t : threads_)
      if (t.joinable()) t.join();
  }

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
    const double count = seconds * rate_ * 1.2 + 100;
    if (count > static_cast<double>(kMaxArrivals))
      fail(ErrorCode::usage,
           cat("at ", rate_, " requests a second this takes ", static_cast<uint64_t>(count),
               " of them, more than the ", kMaxArrivals, " that can be planned"),
           "", "ask for fewer requests or fewer or shorter windows");
    std::mt19937_64 random(options_.seed);
    std::exponential_distribution<double> gap(rate_);
    double t = 0;
    for (double i = 0; i < count; ++i) {
      arrivals_.push_back(static_cast<int64_t>(t * 1e9));
      t += options_.poisson ? gap(random) : 1 / rate_;
    }
  }

  bool stopped() const { return stop_ || interrupted(); }

  // When the next request of this thread is to go, waiting until then; nullopt: there is none.
  std::optional<int64_t> next_begin() {
    if (stopped()) return std::nullopt;
    const uint64_t number = next_.fetch_add(1);
    if (options_.requests && number >= options_.requests) return std::nullopt;
    if (rate_ <= 0) return now_ns();
    if (number >= arrivals_.size()) return std::nullopt;
    // The latency counts from when the request should have gone, so a stalled server cannot hide its stall.
    const int64_t begin = arrivals_[number];
    for (int64_t now; !stopped() && (now = now_ns()) < begin;)
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min<int64_t>(begin - now, 50'000'000)));
    if (stopped()) return std::nullopt;
    return begin;
  }

  static std::string send(LoadClient& client, const SequenceMark& mark) {
    try {
      return client.infer(mark);
    } catch (const std::exception& e) {
      return e.what();
    }
  }

  void work(LoadClient& client, int index) {
    ::prctl(PR_SET_TIMERSLACK, 1000UL);  // ns; by default a thread wakes 50 us late, which would be a latency
    PerThread& own = samples_[static_cast<size_t>(index)];
    SequenceMark mark;
    int in_sequence = 0;
    while (const auto begin = next_begin()) {
      if (options_.sequence_length > 0) {
        if (in_sequence == 0) mark.id = first_sequence() + next_sequence_.fetch_add(1);
        mark.start = in_sequence == 0;
        mark.end = in_sequence + 1 == options_.sequence_length;
        in_sequence = mark.end ? 0 : in_sequence + 1;
      }
      const std::string error = send(client, mark);
      const int64_t end = now_ns();
      std::lock_guard lock(own.mutex);
      if (error.empty()) {
        own.samples.push_back({end, static_cast<uint64_t>(end - *begin)});
      } else {
        own.errors.push_back(end);
        if (own.first_error.empty()) own.first_error = error;
      }
    }
    if (in_sequence == 0) return;
    mark.start = false, mark.end = true;  // not measured: the server is to forget the sequence
    send(client, mark);
  }

  // Ids of two load generators differ, and fit into the INT32 that a model may take them in.
  static uint64_t first_sequence() { return static_cast<uint64_t>(::getpid() % 2000) * 1'000'000 + 1; }

  const LoadOptions& options_;
  const double rate_;
  std::vector<int64_t> arrivals_;
  std::vector<PerThread> samples_;
  std::vector<std::thread> threads_;
  Clock::time_point start_;
  std::atomic<uint64_t> next_{0};
  inline static std::atomic<uint64_t> next_sequence_{0};  // of all levels
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

// Not by the command line's own checks, which take what is not a number for anything.
void check_number(double v, double least, double most, std::string_view flag) {
  if (!(v >= least && v <= most))
    fail(ErrorCode::usage, cat(flag, " is ", v, ", it must lie between ", least, " and ", most));
}

void check_options(const LoadOptions& o) {
  if (o.model.empty()) fail(ErrorCode::usage, "no model is named", "", "name it with --model");
  check_number(o.window_s, 0.001, 86400, "--window");
  check_number(o.warm_up_s, 0, 86400, "--warm-up");
  check_number(o.stability, 0.0001, 10, "--stability");
  check_number(o.timeout_s, 0.001, 86400, "--timeout");
  check_number(o.sequence_length, 0, 1e6, "--sequence-length");
  check_number(o.windows, 1, 1000, "--windows");
  check_number(o.max_windows, o.windows, 100'000, "--max-windows");
  check_number(o.max_threads, 1, kMaxThreads, "--max-threads");
  for (int c : o.concurrency) check_number(c, 1, kMaxThreads, "--concurrency");
  for (double rate : o.rates) check_number(rate, 0.001, kMaxRate, "--rate");
  if (o.shared_memory && o.json_data)
    fail(ErrorCode::usage, "--json-tensors and --shared-memory exclude each other");
}

}  // namespace

std::vector<LoadResult> run_loadtest(const LoadOptions& o) {
  check_options(o);
  const Endpoint endpoint = parse_endpoint(o.url);
  if (o.streaming && !endpoint.grpc)
    fail(ErrorCode::usage, "--streaming is of gRPC", "", "name the server as grpc://host:port");
  if (o.json_data && endpoint.grpc)
    fail(ErrorCode::usage, "--json-tensors is of HTTP", "", "name the server as http://host:port");
  const TargetModel model = connect(endpoint, o)->describe(o);
  if (model.decoupled && !o.streaming)
    fail(ErrorCode::usage, cat("model '", o.model, "' is decoupled: a request has any number of responses"),
         "", "use grpc://host:port with --streaming");
  const std::vector<TensorValue> inputs = make_load_inputs(o, model);
  std::vector<LoadResult> results;
  if (o.rates.empty())
    for (int c : o.concurrency) results.push_back(measure(o, endpoint, model, inputs, c, 0));
  else
    for (double rate : o.rates) results.push_back(measure(o, endpoint, model, inputs, o.max_threads, rate));
  return results;
}

}  // namespace pelton::serve
