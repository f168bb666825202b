// SPDX-License-Identifier: Apache-2.0
// What becomes of the executions under way when a model's process ends.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "serve/core/batch_runner.h"
#include "serve/engine/python_frames.h"
#include "serve/engine/python_instance.h"

namespace pelton::serve {

// The thread of the reader: hears out the process, and those that take its place while there is work for
// them.
void PythonInstance::read(std::shared_ptr<WorkerProcess> process) {
  while (process) {
    std::string why;
    if (!listen(process, why)) process->kill();
    process = replace(process, why);
  }
}

// Until the process ends; false with a reason if it had to be given up.
bool PythonInstance::listen(const std::shared_ptr<WorkerProcess>& process, std::string& why) {
  try {
    for (Frame f; process->receive(f);)
      if (f.kind == Frame::Kind::executed)
        executed(f);
      else
        handle(process, f);
    return true;
  } catch (const std::exception& e) {
    why = cat(": ", e.what());
    return false;
  }
}

// Answers what the ended process had begun and starts another one if more is left.
std::shared_ptr<WorkerProcess> PythonInstance::replace(const std::shared_ptr<WorkerProcess>& ended,
                                                       const std::string& why) {
  if (sender_.joinable()) sender_.join();
  const Error lost(ErrorCode::internal,
                   cat("the model's process ", ended->end(), why, "; it is started again"), config_.name);
  const uint64_t begun = ended->begun();
  std::vector<Flight> failed;
  bool more = false;
  {
    std::lock_guard lock(mutex_);
    for (auto it = flights_.begin(); it != flights_.end();) {
      if (config_.decoupled || stopping_ || it->first <= begun) {
        failed.push_back(std::move(it->second));
        it = flights_.erase(it);
      } else {
        ++it;
      }
    }
    if (flights_.empty()) site_->hold(false);
    more = replacing_ = !flights_.empty();
    process_.reset();
    changed_.notify_all();
  }
  fail_pending(lost, 0, UINT64_MAX);
  for (Flight& f : failed) {
    f.run->fail(lost);
    f.done();
  }
  if (!more) return nullptr;
  std::shared_ptr<WorkerProcess> next;
  std::optional<Error> error;
  try {
    next = start();
  } catch (const Error& e) {
    error = e;
  } catch (const std::exception& e) {
    error = Error(ErrorCode::internal, e.what(), config_.name);
  }
  if (next) {
    // Apart from the reader: a process may want to be heard before it listens.
    sender_ = std::thread([this, next] { send_left(next); });
    return next;
  }
  std::map<uint64_t, Flight> left;
  {
    std::lock_guard lock(mutex_);
    replacing_ = false;
    left.swap(flights_);
    site_->hold(false);
    changed_.notify_all();
  }
  for (auto& [unused, flight] : left) {
    flight.run->fail(*error);
    flight.done();
  }
  return nullptr;
}

// Sends the executions that wait for the new process, in order, and opens it for further ones.
void PythonInstance::send_left(const std::shared_ptr<WorkerProcess>& process) {
  for (uint64_t last = 0;;) {
    std::vector<Blob> blobs;
    std::string head;
    std::optional<Flight> failed;
    std::optional<Error> error;
    {
      std::lock_guard lock(mutex_);
      const auto it = flights_.upper_bound(last);
      if (it == flights_.end()) {
        replacing_ = false;
        process_ = process;
        changed_.notify_all();
        return;
      }
      last = it->first;
      try {
        head = execute_head(last, it->second.run->requests, config_, it->second.first_key, blobs);
      } catch (...) {
        error = error_from_current_exception(config_.name);
        failed = std::move(it->second);
        flights_.erase(it);
        if (flights_.empty()) site_->hold(false);
      }
    }
    if (failed) {
      failed->run->fail(*error);
      failed->done();
      continue;
    }
    try {
      process->send(Frame::Kind::execute, head, blobs);
    } catch (...) {  // the frame may have left in part
      process->kill();
    }
  }
}

}  // namespace pelton::serve
