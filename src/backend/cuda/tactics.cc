// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/tactics.h"

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>

#include "backend/cuda/handles.h"
#include "backend/cuda/kept.h"
#include "backend/cuda/libraries.h"
#include "base/log.h"
#include "device/artifacts.h"
#include "device/timing_budget.h"
#include "runtime/version.h"

namespace pelton::backend::cuda {
namespace {

constexpr int kRunsInGraph = 8, kRounds = 3;

}  // namespace

double microseconds(const std::function<void(cudaStream_t)>& run, cudaStream_t stream) {
  GraphHandle graph;
  run(stream);  // what is loaded at first use stays outside the recording
  PELTON_CUDA(cudaStreamSynchronize(stream));
  PELTON_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    for (int i = 0; i < kRunsInGraph; ++i) run(stream);
  } catch (...) {
    cudaGraph_t broken = nullptr;
    (void)cudaStreamEndCapture(stream, &broken);
    if (broken) (void)cudaGraphDestroy(broken);
    (void)cudaGetLastError();
    throw;
  }
  PELTON_CUDA(cudaStreamEndCapture(stream, graph.out()));
  GraphExecHandle ready;
  PELTON_CUDA(cudaGraphInstantiate(ready.out(), graph.get(), 0));
  EventHandle begin = make_event(true), end = make_event(true);
  double best = std::numeric_limits<double>::infinity();
  PELTON_CUDA(cudaGraphLaunch(ready.get(), stream));
  for (int i = 0; i < kRounds; ++i) {
    PELTON_CUDA(cudaEventRecord(begin.get(), stream));
    PELTON_CUDA(cudaGraphLaunch(ready.get(), stream));
    PELTON_CUDA(cudaEventRecord(end.get(), stream));
    PELTON_CUDA(cudaEventSynchronize(end.get()));
    float ms = 0;
    PELTON_CUDA(cudaEventElapsedTime(&ms, begin.get(), end.get()));
    best = std::min(best, static_cast<double>(ms) * 1e3 / kRunsInGraph);
  }
  return best;
}

namespace {

struct Answers {
  std::mutex mutex;
  std::map<std::string, std::string> names;  // by key
};
Answers& answers() {
  static auto* const known = new Answers;
  return *known;
}

// Everything but the problem that an answer depends on.
std::string machine() {
  static const std::string text = [] {
    int device = 0, driver = 0;
    cudaDeviceProp p{};
    PELTON_CUDA(cudaGetDevice(&device));
    PELTON_CUDA(cudaGetDeviceProperties(&p, device));
    PELTON_CUDA(cudaDriverGetVersion(&driver));
    return cat("pelton ", version(), " ", p.name, " ", p.multiProcessorCount, " driver ", driver,
               " cublaslt ", missing_cublas_lt().empty() ? cublas_lt().cublasLtGetVersion() : 0, " cudnn ",
               missing_cudnn().empty() ? cudnn().cudnnGetVersion() : 0);
  }();
  return text;
}

}  // namespace

std::optional<size_t> known_fastest(const std::string& key, const std::vector<std::string>& names) {
  if (!device::may_choose_by_timing()) return std::nullopt;
  Answers& a = answers();
  std::lock_guard lock(a.mutex);
  auto it = a.names.find(key);
  if (it == a.names.end()) {
    std::optional<std::string> stored = find_kept("tactics", cat(machine(), "\n", key));
    if (!stored) return std::nullopt;
    it = a.names.emplace(key, std::move(*stored)).first;
  } else {
    keep_with_plan("tactics", cat(machine(), "\n", key), it->second);
  }
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == it->second) return i;
  return std::nullopt;
}

namespace {

// Callers put first what is fastest as a rule.
size_t first_that_runs(const std::vector<Way>& ways, cudaStream_t stream) {
  for (size_t i = 0;; ++i) try {
      ways[i].run(stream);
      PELTON_CUDA(cudaStreamSynchronize(stream));
      return i;
    } catch (const Error& e) {
      if (e.code() == ErrorCode::device_lost || i + 1 == ways.size()) throw;
    }
}

}  // namespace

bool timing_is_over() {
  const device::TimingBudget* budget = device::TimingBudget::current();
  return !device::may_choose_by_timing() || (budget && budget->spent());
}

bool fits_in_memory(const std::string& key, const std::function<void()>& run) {
  try {
    run();
    return true;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::out_of_memory) throw;
    log_warn(cat("faster ways are left out: ", key, ": ", e.message()));
    if (device::TimingBudget* budget = device::TimingBudget::current()) budget->count_left_out();
    return false;
  }
}

size_t fastest_in_memory(const std::string& key, const std::function<size_t()>& choose) {
  size_t best = 0;
  fits_in_memory(key, [&] { best = choose(); });
  return best;
}

std::optional<size_t> sound_in_memory(const std::string& key,
                                      const std::function<std::optional<size_t>()>& choose) {
  std::optional<size_t> best;
  fits_in_memory(key, [&] { best = choose(); });
  return best;
}

size_t fastest(const std::string& key, const std::vector<Way>& ways) {
  PELTON_CHECK(!ways.empty(), key);
  static std::mutex timing;
  std::lock_guard lock(timing);  // one at a time: two would disturb each other
  std::vector<std::string> names;
  for (const Way& w : ways) names.push_back(w.name);
  if (std::optional<size_t> known = known_fastest(key, names)) return *known;
  StreamHandle stream = make_stream();
  if (!device::may_choose_by_timing()) return first_that_runs(ways, stream.get());
  if (device::TimingBudget* budget = device::TimingBudget::current(); budget && budget->spent()) {
    budget->count_left_out();
    return first_that_runs(ways, stream.get());
  }
  size_t best = ways.size();
  double best_us = std::numeric_limits<double>::infinity();
  std::exception_ptr error;
  std::string table;
  for (size_t i = 0; i < ways.size(); ++i) {
    try {
      const double us = microseconds(ways[i].run, stream.get());
      table += cat(table.empty() ? "" : ", ", ways[i].name, " ", us);
      if (us < best_us) {
        best_us = us;
        best = i;
      }
    } catch (const Error& e) {
      if (e.code() == ErrorCode::device_lost) throw;
      error = std::current_exception();
    }
  }
  if (best == ways.size()) std::rethrow_exception(error);
  log_debug(cat("timed ", key, " (us): ", table));
  keep("tactics", cat(machine(), "\n", key), ways[best].name);
  Answers& a = answers();
  std::lock_guard answer(a.mutex);
  a.names[key] = ways[best].name;
  return best;
}

}  // namespace pelton::backend::cuda
