// SPDX-License-Identifier: Apache-2.0
// Polling: what is new, changed or gone since the last look.
#include "base/error.h"
#include "base/log.h"
#include "serve/core/repository.h"

namespace pelton::serve {

void Repository::poll_until_stopped() {
  std::unique_lock lock(poll_mutex_);
  while (!stopping_) {
    poll_wake_.wait_for(lock, std::chrono::duration<double>(options_.poll_seconds));
    if (stopping_) return;
    lock.unlock();
    try {
      poll();
    } catch (const std::exception& e) {
      lock.lock();
      if (!stopping_) log_warn("polling the model repository: ", e.what());
      continue;
    }
    lock.lock();
  }
}

// Ensembles whose last load failed and of which a step has been loaded since `since`.
std::map<std::string, std::string> Repository::mended_ensembles(
    const std::map<std::string, std::string>& models, Clock::time_point since) {
  std::map<std::string, std::string> out;
  std::shared_lock lock(mutex_);
  for (const auto& [name, path] : models) {
    const auto it = entries_.find(name);
    if (it == entries_.end() || !it->second->failure) continue;
    for (const std::string& step : it->second->needs) {
      const auto s = entries_.find(step);
      if (s != entries_.end() && !s->second->failure && s->second->tried >= since) out[name] = path;
    }
  }
  return out;
}

void Repository::poll() {
  const auto begin = Clock::now();
  const auto models = scan();
  std::map<std::string, std::string> changed;
  for (const auto& [name, path] : models) {
    auto e = entry(name);
    uint64_t now = 0;
    try {
      now = ModelDir(path).fingerprint();
    } catch (const Error&) {
      continue;  // removed while we look; the next round sees it
    }
    std::unique_lock lock(mutex_);
    if (e->wanted && e->fingerprint == now) continue;
    e->fingerprint = now;  // a broken model is tried again only when it changes
    changed[name] = path;
  }
  load_all(changed, begin);
  // A mended step mends the ensembles over it, whose own files did not change, and so on upwards.
  for (auto since = begin;;) {
    const auto mended = mended_ensembles(models, since);
    if (mended.empty()) break;
    since = Clock::now();
    load_all(mended, since);
  }
  std::map<int64_t, VersionInfo> gone;
  std::unique_lock lock(mutex_);
  for (auto& [name, e] : entries_)
    if (!models.contains(name) && e->wanted) {
      e->wanted = false;
      e->failure.reset();
      for (auto& [v, info] : e->versions) {
        gone[static_cast<int64_t>(gone.size())].model = std::move(info.model);
        info = {ModelState::unavailable, "removed from the repository", nullptr};
      }
    }
  lock.unlock();
}

}  // namespace pelton::serve
