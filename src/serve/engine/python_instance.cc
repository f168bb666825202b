// SPDX-License-Identifier: Apache-2.0
#include "serve/engine/python_instance.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <semaphore>

#include "base/error.h"
#include "serve/engine/python_frames.h"
#include "serve/engine/python_sources.h"
#include "serve/engine/python_talk.h"

namespace pelton::serve {
namespace {

using Json = nlohmann::json;

constexpr auto kFinalizeTime = std::chrono::seconds(10);
// As much work as may wait in a process: little enough that another instance would hardly have been quicker.
constexpr int64_t kPipelineNs = 500'000;
constexpr int64_t kMaxDepth = 32;

// Instances count within their group.
std::string instance_name(const ModelConfig& config, int index) {
  const std::string& group = config.places[static_cast<size_t>(index)].group;
  if (group.empty()) return cat(config.name, "_", index);
  const auto end = config.places.begin() + index;
  return cat(group, "_", std::count_if(config.places.begin(), end, [&](const InstancePlace& p) {
               return p.group == group;
             }));
}

}  // namespace

PythonInstance::PythonInstance(std::shared_ptr<const PythonModel> model, const void* engine, int index)
    : model_(std::move(model)),
      config_(model_->config),
      index_(index),
      site_(model_->services->graph->site(engine)),
      asking_(std::make_shared<std::atomic<int>>(0)),
      pipelines_(!config_.decoupled && !config_.sequence) {
  ensure_process();
}

PythonInstance::~PythonInstance() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.wait(lock, [&] { return !replacing_; });
  if (auto process = process_) {
    lock.unlock();
    process->send(Json{{"op", "finalize"}, {"id", 0}});
    lock.lock();
    if (!changed_.wait_for(lock, kFinalizeTime, [&] { return !process_; })) process->kill();
  }
  lock.unlock();
  if (reader_.joinable()) reader_.join();
  if (sender_.joinable()) sender_.join();
}

std::shared_ptr<WorkerProcess> PythonInstance::start() {
  auto process = std::make_shared<WorkerProcess>(model_->executable, std::string(python_worker_source()),
                                                 model_->services->answers, log_prints_of(config_.name));
  set_priority(config_.optimization.priority, process->pid());
  Json m = python_start_message("serve", model_->file, model_->folder, config_.decoupled);
  m["outputs"] = Json::array();
  for (const TensorSpec& t : config_.outputs) m["outputs"].push_back(t.name);
  const InstancePlace& place = config_.places[static_cast<size_t>(index_)];
  const bool gpu = place.kind == InstancePlace::Kind::gpu;
  m["args"] = {{"model_config", config_to_json(*config_.tree)},
               {"model_instance_kind", gpu ? "GPU" : "CPU"},
               {"model_instance_name", instance_name(config_, index_)},
               {"model_instance_device_id", cat(std::max(0, place.gpu))},
               {"model_repository", model_->folder},
               {"model_version", cat(std::max<int64_t>(1, model_->version))},
               {"model_name", config_.name}};
  process->send(m);
  for (;;) {
    Frame f;
    if (!process->receive(f))
      fail(ErrorCode::plugin, cat("the model's process ", process->end(), " while it started"), config_.name);
    const Json head = f.json();
    const std::string op = head.value("op", "");
    if (op == "ready") return process;
    if (op == "failed") fail_from_model(config_.name, head);
    handle(process, f);
  }
}

// In the thread that begins executions.
void PythonInstance::ensure_process() {
  {
    std::lock_guard lock(mutex_);
    if (process_ || replacing_) return;
  }
  if (reader_.joinable()) reader_.join();
  auto process = start();
  std::lock_guard lock(mutex_);
  process_ = process;
  reader_ = std::thread([this, process] { read(process); });
}

int PythonInstance::depth() {
  const int64_t slowest = slowest_ns_.load(std::memory_order_relaxed);
  if (!pipelines_ || slowest == 0 || asking_->load(std::memory_order_relaxed)) return 1;
  return static_cast<int>(std::clamp<int64_t>(kPipelineNs / slowest, 1, config_.batching ? 2 : kMaxDepth));
}

void PythonInstance::execute(BatchRun& run) {
  auto done = std::make_shared<std::binary_semaphore>(0);
  begin(run, [done] { done->release(); });
  done->acquire();
}

void PythonInstance::begin(BatchRun& run, std::function<void()> done) {
  const uint64_t batch = ++batches_;
  Flight flight{&run, std::move(done), keys_ + 1};
  keys_ += run.requests.size();
  for (const RequestPtr& r : run.requests)
    if (r->wait) r->wait->running(site_);
  std::vector<Blob> blobs;
  const std::string head = execute_head(batch, run.requests, config_, flight.first_key, blobs);
  std::shared_ptr<WorkerProcess> process;
  // Made before anything is handed over: from then on nothing may throw, the reader answers.
  const uint64_t first = flight.first_key;
  std::map<uint64_t, Pending> pending;
  for (size_t i = 0; config_.decoupled && i < run.requests.size(); ++i)
    pending.emplace(first + i, Pending{nullptr, run.responder});
  std::map<uint64_t, Flight> flights;
  flights.emplace(batch, std::move(flight));
  for (bool registered = false; !registered;) {
    ensure_process();
    std::lock_guard lock(mutex_);
    if (!process_ && !replacing_) continue;  // it has ended since, and its reader with it
    registered = true;
    if (flights_.empty()) site_->hold(true);
    process = process_;
    for (auto& [key, p] : pending) p.request = std::move(run.requests[key - first]);
    pending_.merge(pending);
    flights_.merge(flights);
  }
  // Without one, or with one that ends now, the reader sends what has not begun to the next.
  try {
    if (process) process->send(Frame::Kind::execute, head, blobs);
  } catch (...) {  // no memory: the frame may have left in part
    process->kill();
  }
}

}  // namespace pelton::serve
